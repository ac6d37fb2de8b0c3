"""Lists of records, whatever they are about: columns, order, filters, formats, and lists that are watched."""
