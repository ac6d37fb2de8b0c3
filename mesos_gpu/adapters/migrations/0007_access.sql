-- Versions of the document that says who may do what, and tokens: of a token only a salted hash of its secret.
CREATE TABLE access_versions (version INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE tokens (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
