-- A state of schema 1, as the last program wrote it that had that schema.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (id TEXT PRIMARY KEY, job_id TEXT, launched_at REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX tasks_by_job ON tasks (job_id);
CREATE TABLE nodes (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO facts VALUES ('framework_id', 'fw');
INSERT INTO jobs VALUES ('j1', 7, CAST('{"id":"j1","spec":{"name":"j","command":null,"argv":["a","b"],"cpus":1.0,"mem_mib":128,"gpus":2,"gpu_model":["A100"],"env":{"K":"v"},"user":null,"labels":{},"max_attempts":1,"timeout_s":null,"kill_grace_s":5.0,"image":null,"container_engine":"mesos","on_gpu_failure":"restart"},"submitted_at":1.5,"sequence":7,"state":"running","version":1,"task_id":null,"launches":0,"attempts":0,"infrastructure_failures":0,"not_before":0.0,"kill_requested":false,"started_at":null,"ended_at":null,"exit_code":3,"message":""}' AS BLOB));
INSERT INTO tasks VALUES ('j1.1', 'j1', 2.5, CAST('{"id":"j1.1","agent_id":"a1","executor_id":"j1.1","job_id":"j1","state":"running","launched_at":2.5,"attempt":1,"gpus":["g0"],"hostname":"","agent_url":"","started_at":null,"ended_at":null,"heard_at":0.0,"unreachable_since":null,"kill_sent_at":null,"message":""}' AS BLOB));
INSERT INTO nodes VALUES ('a1', CAST('{"id":"a1","hostname":"h","agent_url":"","attributes":{"rack":"1"},"inventory":{"gpus":[{"id":"g0","model":"A100","memory_mib":81920,"minor":0,"pci_bus_id":"0000:01:00.0","numa_node":null,"links":[],"health":"ok","reason":"","since":0.0,"warnings":[],"history":[]}],"source":"simulated","driver_version":"535","cuda_version":null,"isolation":""},"reported_at":null,"monitor":null,"monitor_launches":0,"monitor_not_before":0.0,"lost_at":null}' AS BLOB));
PRAGMA user_version=1;
