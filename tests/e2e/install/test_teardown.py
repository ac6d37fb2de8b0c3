"""`mesos-gpu teardown` against a real master that asks for names."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import Result

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.host.teardown import chosen
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.e2e.test_jobs import submit

ONE, OTHER = {"id": "f-1", "name": "mesos_gpu"}, {"id": "f-2", "name": "marathon"}


@pytest.fixture
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)], secure=True) as running:
        yield running


def teardown(stack: Stack, *words: str) -> Result:
    return call("teardown", *words, "--master", f"127.0.0.1:{stack.cluster.master.port}")


@pytest.mark.cluster
def test_teardown_ends_all_tasks_and_needs_a_proof_and_a_yes(stack: Stack) -> None:
    assert stack.secure is not None
    proof = ("--mesos-credentials", str(stack.secure.operator))
    seconds = f"1000.{os.getpid():07}"  # of a sleep that only this test starts
    with Client(stack.reach) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        job = submit(client, f"exec sleep {seconds}", gpus=1)
        wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    pids = [
        each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", seconds]
    ]
    assert pids

    nameless = teardown(stack, "mesos_gpu", "--yes")
    assert (nameless.exit_code, "refuses: 401" in nameless.stderr) == (78, True), nameless.stderr
    unsure = teardown(stack, "mesos_gpu", *proof)
    assert (unsure.exit_code, "add --yes" in unsure.stderr) == (2, True), unsure.stderr
    absent = teardown(stack, "other", "--yes", *proof)
    assert (absent.exit_code, "it has: mesos_gpu (" in absent.stderr) == (66, True), absent.stderr
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)

    stack.scheduler.kill()
    done = teardown(stack, "mesos_gpu", "--yes", *proof)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("mesos_gpu (")
    wait_until("the task has ended", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    assert teardown(stack, "mesos_gpu", "--yes", *proof).exit_code == 66


def test_teardown_prefers_an_id_and_refuses_a_name_of_two_frameworks() -> None:
    assert chosen([ONE, OTHER], "marathon") is OTHER
    assert chosen([ONE, {"id": "f-3", "name": "f-1"}], "f-1") is ONE
    with pytest.raises(Conflict, match="2 frameworks are called 'marathon'"):
        chosen([OTHER, {**OTHER, "id": "f-4"}], "marathon")
    with pytest.raises(NotFound, match=r"it has: none"):
        chosen([], "marathon")
