"""An operator removes the framework: its jobs outlive it."""

import json
import signal
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, submit
from tests.fault.test_kill9 import everything_is_free

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_jobs_of_a_framework_that_was_torn_down_go_on_under_a_new_one(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    said = open_directory / "said"
    said.touch()
    said.chmod(0o666)
    first = f"test $(grep -c begun {said}) -le 2"
    says = f'say() {{ echo "$1 $MESOS_GPU_JOB_ID" >> {said}; }}; '
    command = f"{says} say begun; if {first}; then sleep 60; fi; say ended"
    jobs = [submit(client, command, gpus=2) for _ in range(3)]  # the third waits
    ids = [job["id"] for job in jobs]
    wait_until(
        "two run", lambda: sorted(said.read_text().splitlines()) == sorted(f"begun {id}" for id in ids[:2])
    )
    (framework,) = stack.cluster.master.state()["frameworks"]

    call = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": framework["id"]}}}
    with urlopen(
        Request(
            f"{stack.cluster.master.url}/api/v1",
            json.dumps(call).encode(),
            {"Content-Type": "application/json"},
        ),
        timeout=30,
    ) as answer:
        assert answer.status == 202 or answer.status == 200

    wait_until("the scheduler ends", lambda: not stack.scheduler.running)
    assert stack.scheduler.exit_code == 1
    assert "start it again: it registers under a new framework id" in stack.scheduler.tail()
    stack.scheduler.start().wait()
    (another,) = stack.cluster.master.state()["frameworks"]
    assert another["id"] != framework["id"]
    for job in jobs:
        ended = end_of(client, job, 120)
        assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    twice = [f"begun {id}" for id in ids[:2]]  # the launches that ended with the framework, too
    each_once = [f"{what} {id}" for id in ids for what in ("begun", "ended")]
    assert sorted(said.read_text().splitlines()) == sorted(twice + each_once)
    stack.scheduler.kill(signal.SIGKILL)
    stack.scheduler.start().wait()
    (same,) = stack.cluster.master.state()["frameworks"]
    assert same["id"] == another["id"]
    everything_is_free(stack, client)
