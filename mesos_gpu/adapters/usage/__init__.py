"""Records of use in SQLite: how they are written, summed up, and read for reports."""
