-- What tasks hold of GPUs, and since when.
CREATE TABLE spans (task_id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
-- Whom use is put down to: each once, as there are few of them and many records.
CREATE TABLE used_accounts (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, queue TEXT NOT NULL, job_class TEXT NOT NULL, app TEXT NOT NULL,
    model TEXT NOT NULL, pool TEXT NOT NULL, UNIQUE (owner, queue, job_class, app, model, pool));
-- Spans that are over, a row for each model of GPUs: written once, and read by reports alone.
CREATE TABLE used_spans (
    account INTEGER NOT NULL, begins_ms INTEGER NOT NULL, ends_ms INTEGER NOT NULL, gpu_milli INTEGER NOT NULL,
    cost_milli INTEGER NOT NULL, charged_milli INTEGER NOT NULL, borrowed INTEGER NOT NULL, idle_ms INTEGER NOT NULL,
    lost_ms INTEGER NOT NULL, refunded_ms INTEGER NOT NULL, wait_ms INTEGER NOT NULL,
    wanted_milli INTEGER NOT NULL, reason TEXT NOT NULL, task_id TEXT NOT NULL, job_id TEXT NOT NULL,
    UNIQUE (task_id, begins_ms, account));
CREATE INDEX used_spans_ends ON used_spans (ends_ms);
-- The same by days of UTC, written with each span and kept when that is deleted; thousandths times milliseconds.
CREATE TABLE used_days (
    account INTEGER NOT NULL, day INTEGER NOT NULL, spans INTEGER NOT NULL, gpu INTEGER NOT NULL, cost INTEGER NOT NULL,
    charged INTEGER NOT NULL, borrowed INTEGER NOT NULL, idle INTEGER NOT NULL, lost INTEGER NOT NULL,
    refunded INTEGER NOT NULL, unmet INTEGER NOT NULL, PRIMARY KEY (account, day)) WITHOUT ROWID;
CREATE TABLE used_waits (
    account INTEGER NOT NULL, step INTEGER NOT NULL, day INTEGER NOT NULL, jobs INTEGER NOT NULL,
    PRIMARY KEY (account, step, day)) WITHOUT ROWID;
