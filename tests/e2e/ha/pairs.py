"""Wait for all schedulers of a cluster, after a test that ended one or took its session of ZooKeeper away."""

import contextlib
import http.client

from mesos_gpu.local.stack import SchedulerProcess, Stack
from tests.conftest import wait_until


def start_ended(stack: Stack) -> None:
    """Start schedulers that have ended as their sessions were over, as their services do."""
    for each in stack.schedulers:
        if not each.running:
            each.start()


def await_schedulers(stack: Stack) -> SchedulerProcess:
    """Return the leader once all schedulers are ready, and ZooKeeper has a session of each.

    A scheduler whose session is over still runs for some seconds, and is started again when it has ended.
    """

    def look() -> SchedulerProcess | None:
        start_ended(stack)
        leader = stack.leader()
        with contextlib.suppress(OSError, http.client.HTTPException):
            if (
                leader is not None
                and leader.get("/v1/leader")["candidates"] == len(stack.schedulers)
                and all(each.get("/v1/health")["connected"] for each in stack.schedulers)
            ):
                return leader
        return None

    leader = wait_until("all schedulers are ready, and one leads", look)
    assert leader is not None
    return leader
