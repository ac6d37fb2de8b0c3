-- Persistent volumes of apps: directories on nodes that outlive tasks.
CREATE TABLE volumes (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
