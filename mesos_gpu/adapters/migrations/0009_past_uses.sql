-- What queues and their users have used of late.
CREATE TABLE past_uses (queue TEXT NOT NULL, user TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (queue, user));
