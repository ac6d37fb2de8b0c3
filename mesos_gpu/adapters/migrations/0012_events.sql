-- The latest events, for whoever listens, by number.
CREATE TABLE events (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
-- What is remembered of jobs that have ended, as long as records of use are.
CREATE TABLE past_jobs (id TEXT PRIMARY KEY, ended_ms INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX past_jobs_ends ON past_jobs (ended_ms);
CREATE INDEX used_spans_jobs ON used_spans (job_id);
