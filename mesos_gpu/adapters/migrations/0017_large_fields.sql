-- Large fields of what jobs and arrays ask for, as environments, by their digest. Rows of jobs and arrays that have some
-- begin with "@" and the digest. Rows from before this step have all their fields until they are saved again.
CREATE TABLE large_fields (digest TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE INDEX jobs_by_large_fields ON jobs (substr(body, 1, 65)) WHERE substr(body, 1, 1) = x'40';
CREATE INDEX arrays_by_large_fields ON arrays (substr(body, 1, 65)) WHERE substr(body, 1, 1) = x'40';
