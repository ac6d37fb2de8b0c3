-- How long jobs have held GPUs that do nothing, and who is kept from being ended for it.
CREATE TABLE idlenesses (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
-- Bookings: GPUs that queues have from one time to another.
CREATE TABLE bookings (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
-- What GPUs did while tasks held them: of open spans as far as it is summed up, then with the records. Before this step
-- nothing was known of it.
CREATE TABLE span_works (task_id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
ALTER TABLE used_spans RENAME COLUMN idle_ms TO unused;
ALTER TABLE used_spans ADD COLUMN busy INTEGER NOT NULL DEFAULT 0;
ALTER TABLE used_spans ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE used_days ADD COLUMN busy INTEGER NOT NULL DEFAULT 0;
ALTER TABLE used_days ADD COLUMN unused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE used_days ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE used_days ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;
