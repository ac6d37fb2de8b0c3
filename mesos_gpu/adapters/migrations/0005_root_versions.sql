CREATE TABLE root_versions (version REAL PRIMARY KEY, body BLOB NOT NULL);
