"""Notices on real Mesos: a preempted job reads who comes and until when, keeps its work, ends, and runs again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.host.sandbox import NOTICE
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.stack import Stack
from tests.clients import reporting
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
#: Prints its notice, keeps its work, and then ends; the second time it is done.
SAVES = """
if [ -e "$WORK/saved" ]; then echo again; exit 0; fi
trap : USR1
echo ready
until [ -e "$MESOS_GPU_NOTICE" ]; do sleep 0.05; done
cat "$MESOS_GPU_NOTICE"
touch "$WORK/saved" "$MESOS_GPU_CHECKPOINT"
exit 75
"""
#: Says what it is sent, and goes on until SIGTERM.
STAYS = """
trap 'echo signalled' USR1
trap 'echo sigterm; exit 0' TERM
echo ready
while :; do sleep 600 & wait $!; done
"""


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with reporting(open_directory / "stack", 2) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        yield client
        for job in client.jobs():
            if job["state"] not in ("finished", "failed", "killed"):
                client.kill(job["id"])
        wait_until("nothing runs", lambda: all(job["ended_at"] for job in client.jobs()))


def submit(client: Client, command: str, **fields: object) -> str:
    request = {
        "command": command, "gpus": 2, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 20.0, "preemptible": True,
        "notice_signal": "SIGUSR1", **fields,
    }  # fmt: skip
    return client.submit(request)["id"]


def output(client: Client, job: str, task: str | None = None) -> str:
    return client.logs(job, stream="stdout", offset=0, length=65536, task_id=task)["data"]


def ready(client: Client, job: str) -> None:
    wait_until("it runs", lambda: client.job(job)["state"] == "running" and "ready" in output(client, job))


def is_told(client: Client, job: str) -> bool:
    notice = client.job(job)["notice"]
    return notice is not None and notice["told"]


def file_of(stack: Stack) -> dict[str, object] | None:
    """Return the content of the latest notice of this cluster, if there is one."""
    files = list(stack.directory.glob(f"**/runs/*/{NOTICE}"))
    files = [path for path in files if not path.parent.is_symlink()]
    return json.loads(max(files, key=lambda path: path.stat().st_mtime).read_text()) if files else None


def test_notice_of_preemption_lets_a_job_keep_its_work_and_run_again(
    client: Client, open_directory: Path
) -> None:
    work = open_directory / "work"
    work.mkdir()
    work.chmod(0o777)
    low = submit(client, SAVES, notice_s=60.0, env={"WORK": str(work)})
    ready(client, low)
    big = submit(client, "sleep 0.2", priority=10, preemptible=False)
    wait_until("the other has run", lambda: client.job(big)["state"] == "finished")
    wait_until("it has run again", lambda: client.job(low)["state"] == "finished")
    job = client.job(low)
    assert (job["attempts"], job["launches"], job["infrastructure_failures"]) == (1, 2, 0)
    texts = [output(client, low, task["id"]) for task in client.tasks(low)]
    assert texts[-1] == "again\n"
    body = json.loads(texts[0].removeprefix("ready\n"))
    assert (body["reason"], body["by"], body["recalled"]) == ("preemption", big, False)
    assert body["until"] - body["at"] == pytest.approx(60, abs=0.01)
    assert job["stopped"] == 1
    assert job["checkpoint_at"] is not None
    started_at = client.job(big)["started_at"]
    assert started_at is not None
    assert body["at"] - 3 <= job["checkpoint_at"] <= started_at


def test_notice_ends_with_sigterm_for_a_job_that_does_not_end(client: Client) -> None:
    low = submit(client, STAYS, notice_s=3.0)
    ready(client, low)
    (first,) = client.tasks(low)
    big = submit(client, "sleep 0.2", priority=10, preemptible=False)
    wait_until("it has its notice", lambda: is_told(client, low))
    notice = client.job(low)["notice"]
    assert notice is not None
    assert (notice["reason"], notice["by"]) == ("preemption", big)
    wait_until("it has ended", lambda: client.tasks(low)[0]["ended_at"])
    said = output(client, low, first["id"])
    assert said == "ready\nsignalled\nsigterm\n"
    ended_at = client.tasks(low)[0]["ended_at"]
    assert ended_at is not None
    assert ended_at >= notice["until"] - 0.1
    wait_until("it runs again", lambda: client.job(low)["state"] == "running")
    assert client.job(low)["attempts"] == 0


def test_notice_that_is_called_off_lets_the_task_go_on(stack: Stack, client: Client) -> None:
    low = submit(client, STAYS, notice_s=600.0)
    ready(client, low)
    (gpu, _) = client.job(low)["gpu_ids"]
    OperatorCalls(client).drain_gpu(gpu, "fan", by="ann", deadline_s=500)
    wait_until("it has its notice", lambda: output(client, low).count("signalled") == 1)
    body = file_of(stack)
    assert body is not None
    assert (body["reason"], body["recalled"]) == ("drain", False)
    OperatorCalls(client).undrain_gpu(gpu, by="ann")
    wait_until("it has its second notice", lambda: output(client, low).count("signalled") == 2)
    body = file_of(stack)
    assert body is not None
    assert body["recalled"] is True
    job = client.job(low)
    assert (job["state"], job["message"]) == (
        "running",
        "it goes on: its node or GPU is not drained any more",
    )


def test_notice_has_the_same_outcome_when_the_scheduler_is_killed_before_its_end(
    stack: Stack, client: Client
) -> None:
    low = submit(client, STAYS, notice_s=6.0)
    ready(client, low)
    (first,) = client.tasks(low)
    big = submit(client, "sleep 0.2", priority=10, preemptible=False)
    wait_until("it has its notice", lambda: is_told(client, low))
    notice = client.job(low)["notice"]
    stack.scheduler.kill()
    stack.scheduler.start().wait()
    wait_until("the other has run", lambda: client.job(big)["state"] == "finished")
    wait_until("it runs again", lambda: client.job(low)["state"] == "running")
    job = client.job(low)
    assert (job["attempts"], job["launches"], job["stopped"], job["infrastructure_failures"]) == (0, 2, 1, 0)
    assert output(client, low, first["id"]) == "ready\nsignalled\nsigterm\n"
    ended_at = client.tasks(low)[0]["ended_at"]
    assert notice is not None
    assert ended_at is not None
    assert ended_at >= notice["until"] - 0.1


def test_notice_of_a_time_limit_comes_before_an_attempt_that_counts(client: Client) -> None:
    job = submit(client, STAYS, notice_s=3.0, timeout_s=5.0, preemptible=False)
    wait_until("it has ended", lambda: client.job(job)["state"] == "failed")
    said = client.job(job)
    assert said["notice"] is not None
    assert (said["notice"]["reason"], said["message"]) == ("time_limit", "Ran longer than its timeout_s of 5")
    assert output(client, job) == "ready\nsignalled\nsigterm\n"


def test_notice_reaches_all_members_of_a_gang_and_their_work_is_kept(client: Client) -> None:
    command = (
        'trap "touch $MESOS_GPU_CHECKPOINT; exit 75" USR1; echo ready; while :; do sleep 600 & wait $!; done'
    )
    low = submit(client, command, gpus=1, tasks=2, notice_s=120.0)
    wait_until("it runs", lambda: client.job(low)["state"] == "running")
    tasks = [task["id"] for task in client.tasks(low)]
    wait_until("all are ready", lambda: all("ready" in output(client, low, task) for task in tasks))
    big = submit(client, "sleep 0.2", priority=10, preemptible=False)
    wait_until("the other has run", lambda: client.job(big)["state"] == "finished")
    wait_until("it runs again", lambda: client.job(low)["state"] == "running")
    job = client.job(low)
    assert (job["attempts"], job["launches"], job["stopped"]) == (0, 2, 1)
    assert job["checkpoint_at"] is not None


def test_checkpoint_of_a_job_is_noted_over_the_interface(client: Client) -> None:
    job = submit(client, STAYS)
    ready(client, job)
    said = client.call("POST", f"/v1/jobs/{job}/checkpoint", dict)
    assert said["checkpoint_at"] >= said["started_at"]
