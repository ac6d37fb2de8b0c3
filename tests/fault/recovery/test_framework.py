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

pytestmark = [pytest.mark.cluster]


def test_jobs_of_a_framework_that_was_torn_down_go_on_under_a_new_one(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    said = open_directory / "said"
    said.touch()
    said.chmod(0o666)
    first = f"test $(grep -c begun {said}) -le 2"
    command = f"echo begun >> {said}; if {first}; then sleep 60; fi; echo ended >> {said}"
    jobs = [submit(client, command, gpus=4) for _ in range(3)]  # the third waits
    wait_until("two run", lambda: said.read_text() == "begun\nbegun\n")
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
    assert "start it again: its jobs go on under a new framework id" in stack.scheduler.tail()
    stack.scheduler.start().wait()
    (another,) = stack.cluster.master.state()["frameworks"]
    assert another["id"] != framework["id"]
    for job in jobs:
        ended = end_of(client, job, 120)
        assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    assert said.read_text() == "begun\n" * 2 + "begun\nended\n" * 3 or said.read_text().count("ended") == 3
    stack.scheduler.kill(signal.SIGKILL)
    stack.scheduler.start().wait()
    (same,) = stack.cluster.master.state()["frameworks"]
    assert same["id"] == another["id"]
    everything_is_free(stack, client)
