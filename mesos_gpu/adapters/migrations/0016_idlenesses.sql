-- How long jobs have held GPUs that do nothing, and who is kept from being ended for it.
CREATE TABLE idlenesses (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
