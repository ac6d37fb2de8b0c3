"""Runs as a task: try to command the cluster. Prints what each attempt got, a JSON list of two for each.

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
from collections.abc import Callable

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
        "resources": [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}}
            for name, value in (("cpus", 0.1), ("mem", 32))
        ],
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


def attempt(name: str, how: Callable[..., str], *arguments: str) -> None:
    try:
        got = how(*arguments)
    except OSError as error:
        got = f"{type(error).__name__}: {error.strerror}"
    print(json.dumps([name, got]), flush=True)


def main() -> None:
    agents, master, api, proof, others = sys.argv[1:6]
    for number, port in enumerate(agents.split(",")):
        attempt(f"root by agent {number}", root_on_this_host, port, f"{proof}.{number}")
    own = agents.split(",")[0]
    attempt("files of others", files_of_others, own, others)
    attempt("our interface", call, api, "/v1/health")
    attempt("own end", own_end, own)
    attempt("teardown", call, master, "/teardown", f"frameworkId={os.environ['MESOS_FRAMEWORK_ID']}")


if __name__ == "__main__":
    main()
