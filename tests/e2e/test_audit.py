"""The audit log of a real scheduler beside a real cluster: on record over kill -9 and restarts, sound at the end."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.audit.verify import verify
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)]) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, gpus=1) as client:
        yield client


def audit(stack: Stack, *words: str) -> list[list[str]]:
    """The rows of the table, in words."""
    done = call("audit", "--url", stack.url, *words)
    assert done.exit_code == 0, done.output
    return [re.split("  +", row) for row in done.stdout.splitlines()[1:]]


def test_audit_has_what_was_answered_after_kill_9(stack: Stack, client: Client) -> None:
    directory = next(stack.scheduler.log.parent.rglob("audit"))
    jobs = []
    for i in range(2):
        jobs.append(
            client.submit({"name": f"job-{i}", "command": "sleep 600", "cpus": 0.1, "mem_mib": 32})["id"]
        )
        wait_until("it runs", lambda: client.job(jobs[-1])["state"] == "running", 60)
        client.kill(jobs[-1])
        stack.scheduler.kill()
        assert [each.flaws for each in verify(directory)] == [(), ()]
        stack.scheduler.start().wait()
        client.patience_s = 60
        wait_until("it ends", lambda: client.job(jobs[-1])["state"] == "killed", 60)
    rows = [row for row in audit(stack, "--on", "job:job-*") if row[2] in ("job:run", "job:kill")]
    assert [(row[2], row[3]) for row in rows] == [
        (right, f"job:{job}") for job in jobs for right in ("job:run", "job:kill")
    ]
    assert len(audit(stack, "--what", "audit:begin")) >= 3, "each start is on record, in both chains"
    said = call("audit", "--verify", "--dir", str(directory)).stdout
    assert re.match(r"changes: lines 1 to \d+ in 1 files: sound", said), said
    assert (directory.stat().st_mode & 0o777, directory.parent.stat().st_mode & 0o077) == (0o700, 0)


def test_audit_of_a_job_names_its_changes_and_the_request_in_the_log(stack: Stack, client: Client) -> None:
    job = client.submit({"name": "shown", "command": "true", "cpus": 0.1, "mem_mib": 32})["id"]
    text = call("show", "--url", stack.url, job).stdout
    assert re.search(r"\nchanged by +\S.*Z  submitted", text), text
    (row,) = audit(stack, "--on", f"job:{job}", "--what", "job:run")
    log = stack.scheduler.log.read_text()
    assert f"[request {row[-1]}]" in next(
        line for line in log.splitlines() if f"{job}: pending: queued" in line
    )
