-- Bookings: GPUs that queues have from one time to another.
CREATE TABLE bookings (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
