"""Submit a job over the REST interface, wait for its end, and print its output: `python3 submit.py`.

Needs the package `requests`. MESOS_GPU_URL is the address of the scheduler, MESOS_GPU_TOKEN a token if it asks for one.
"""

import os
import sys
from typing import Any

import requests

URL = os.environ.get("MESOS_GPU_URL", "http://127.0.0.1:8080")
ENDED = ("finished", "failed", "killed")


def session() -> requests.Session:
    """Return a session that sends the token, if there is one."""
    made = requests.Session()
    if token := os.environ.get("MESOS_GPU_TOKEN"):
        made.headers["Authorization"] = f"Bearer {token}"
    return made


def call(http: requests.Session, verb: str, path: str, **more: Any) -> Any:
    """Return the answer to a request; end with the scheduler's own words if it refuses."""
    answer = http.request(verb, URL + path, timeout=90, **more)
    if not answer.ok:
        error = answer.json()["error"]
        problems = [f"{each['path']}: {each['reason']}" for each in error.get("problems", [])]
        sys.exit("\n".join([f"{error['message']}; to fix: {error['remedy']}", *problems]))
    return answer.json()


def wait(http: requests.Session, job: Any) -> Any:
    """Return the job at its end: each request waits up to 60 s for a change."""
    while job["state"] not in ENDED:
        job = call(
            http, "GET", f"/v1/jobs/{job['id']}", params={"after_version": job["version"], "timeout_s": 60}
        )
    return job


def output(http: requests.Session, job: Any) -> str:
    """Return all of the job's stdout, which comes in pieces."""
    text, offset = "", 0
    while True:
        piece = call(http, "GET", f"/v1/jobs/{job['id']}/logs", params={"offset": offset})
        if piece["next_offset"] == offset:
            return text
        text, offset = text + piece["data"], piece["next_offset"]


def main() -> None:
    """Run one job with a GPU."""
    request = {
        "name": "from-python",
        "argv": ["printenv", "CUDA_VISIBLE_DEVICES"],
        "gpus": 1,
        "timeout_s": 600,
    }
    with session() as http:
        job = wait(http, call(http, "POST", "/v1/jobs", json=request))
        print(f"{job['id']}: {job['state']}, exit code {job['exit_code']}")
        if job["started_at"] is not None:
            print(output(http, job), end="")
    sys.exit(0 if job["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
