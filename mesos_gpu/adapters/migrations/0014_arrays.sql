-- Job arrays: what is left of them, and how their tasks ended.
CREATE TABLE arrays (id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
