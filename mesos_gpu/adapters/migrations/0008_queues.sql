-- Versions of the tree of queues.
CREATE TABLE queue_versions (version INTEGER PRIMARY KEY, body BLOB NOT NULL);
