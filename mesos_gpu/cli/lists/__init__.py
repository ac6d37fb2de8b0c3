"""Lists of any records: columns, sort order, filters, formats and --watch."""
