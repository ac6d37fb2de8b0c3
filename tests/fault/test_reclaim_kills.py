"""The scheduler is killed in each phase of a reclaim: who was owed the room has it, who was stopped for it runs again,
and nobody else was stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, free_all
from tests.conftest import wait_until
from tests.e2e.tenancy.story import apply, runs, submit

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
NOTICE_S = 1
#: Runs in the scheduler before its own code: no hook in the product.
AT_A_PHASE = """
import os, signal, sys
if os.environ.get("DIE_AT") and "mesos_gpu.scheduler" in " ".join(sys.orig_argv):
    from mesos_gpu.adapters.pymesos_driver import PymesosDriver
    phase, mark = os.environ["DIE_AT"], os.environ["DIE_MARK"]

    def die():
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(name, hit, after=False):
        real = getattr(PymesosDriver, name)
        def call(self, *args, **named):
            if hit(args) and not after:
                die()
            result = real(self, *args, **named)
            if hit(args) and after:
                die()
            return result
        setattr(PymesosDriver, name, call)

    if phase in ("plan saved", "notice sent"):
        watched("message", lambda args: b'"notice"' in args[2], after=phase == "notice sent")
    elif phase == "time passed":
        watched("kill", lambda args: args[0].startswith("borrower"))
    elif phase == "victim ended":
        watched("acknowledge", lambda args: args[1].startswith("borrower") and os.path.exists(mark + ".notice"))
        watched("kill", lambda args: args[0].startswith("borrower") and open(mark + ".notice", "w").close())
    elif phase == "room kept":
        watched("accept", lambda args: any(task["task_id"]["value"].startswith("owner") for task in args[1]))
"""
PHASES = [
    *(pytest.param(phase, marks=pytest.mark.long) for phase in ("plan saved", "notice sent", "time passed")),
    "victim ended",
    pytest.param("room kept", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def cluster(open_directory: Path) -> Iterator[tuple[Stack, Client]]:
    nodes = [NodeSpec(1), NodeSpec(1)]
    with Stack(open_directory / "stack", nodes) as stack, client_of(stack, 2) as client:
        apply(
            client,
            {"production": {"guarantee_gpus": [{"nodes": 1, "gpus": 1}]}, "dev": {"notice_s": NOTICE_S}},
        )
        yield stack, client


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: tuple[Stack, Client]) -> Iterator[None]:
    yield
    stack, client = cluster
    if not stack.scheduler.running:
        stack.scheduler.start().wait()
    free_all(client)


@pytest.mark.parametrize("phase", PHASES)
def test_a_reclaim_ends_the_same_wherever_the_scheduler_dies(
    cluster: tuple[Stack, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    stack, client = cluster
    (tmp_path / "sitecustomize.py").write_text(AT_A_PHASE)
    stack.scheduler.kill()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.setenv("DIE_AT", phase)
        patch.setenv("DIE_MARK", str(tmp_path / "died"))
        stack.scheduler.start().wait()
    borrowers = [submit(client, "borrower", "dev", "sleep 600", gpus=1, preemptible=True) for _ in range(2)]
    runs(client, borrowers)
    owner = submit(client, "owner", "production", "sleep 600", gpus=1)
    wait_until("the scheduler died", lambda: not stack.scheduler.running, 60)
    assert (tmp_path / "died").exists()
    stack.scheduler.start().wait()

    runs(client, [owner])
    stopped = [job for job in borrowers if client.job(job)["state"] != "running"]
    assert len(stopped) == 1, "one node's, and no more"
    assert {client.job(job)["attempts"] for job in borrowers} == {0}
    assert {len(client.tasks(job)) for job in borrowers if job not in stopped} == {1}
    client.kill(owner)
    runs(client, borrowers)
    assert {len(client.tasks(job)) for job in stopped} == {2}
