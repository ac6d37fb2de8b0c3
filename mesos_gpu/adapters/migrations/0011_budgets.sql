-- What is used of a budget in one of its periods.
CREATE TABLE budget_uses (
    queue TEXT NOT NULL, user TEXT NOT NULL, period INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (queue, user, period)) WITHOUT ROWID;
