"""A scheduler of real Mesos keeps a journal, is killed and goes on; the replay decides the same."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


def run(client: Client, command: str) -> str:
    """The id of a job that was submitted."""
    request = {"command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}
    return str(client.submit(request)["id"])


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(2)]) as stack:
        yield stack


def test_journal_of_a_killed_scheduler_replays_to_the_same_decisions(stack: Stack) -> None:
    with client_of(stack, 2) as client:
        first, long = run(client, "true"), run(client, "sleep 600")
        wait_until("it ends", lambda: client.job(first)["state"] == "finished")
        wait_until("it runs", lambda: client.job(long)["state"] == "running")
        stack.scheduler.kill(signal.SIGKILL)
        stack.scheduler.start().wait()
        client.kill(long)
        wait_until("it is killed", lambda: client.job(long)["state"] == "killed")
    stack.scheduler.kill(signal.SIGTERM)
    journal = stack.directory / "scheduler" / "journal"
    done = CliRunner().invoke(main, ["simulate", "replay", str(journal), "--json", "--explain"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert (report["same"], report["files"]) == (True, 2)
    decided = " ".join(words for step in report["steps"] for words in step["decided"])
    for words in (f"Launch {first}.1 on ", f"{long}.1 on ", f'Kill task_id="{long}.1"'):
        assert words in decided
