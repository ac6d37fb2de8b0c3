"""Parts of the SQLite state: file permissions and locks, schema, checksums, copies and restores."""
