"""The time of day is set, forth and back, under work: of the scheduler, and of a host with all that is there."""

import time
from functools import partial
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.fault.test_kill9 import executors
from tests.remote.machines import LIBRARY, NO_CLOCKS, Clock, Clocked

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not LIBRARY.exists(), reason=NO_CLOCKS),
]


def steps_do_no_harm(client: Client, clock: Clock) -> None:
    """Jobs run, wait, are launched and end as if nothing were, with the clock an hour ahead, and two hours back."""
    for offset in ("+1h", "-1h"):
        running = submit(client, "sleep 8; echo done", gpus=1, timeout_s=1200)
        waiting = submit(client, "echo done", gpus=2)
        wait_until("one runs", partial(is_running, client, running))
        clock.set(offset)
        for job in (running, waiting):
            ended = end_of(client, job, 90)
            assert (ended["state"], ended["attempts"], ended["launches"]) == ("finished", 1, 1), ended
            assert output_of(client, ended) == "done\n"
        wait_until(
            "cards are known and free", lambda: [gpu["health"] for gpu in client.gpus()] == ["ok", "ok"]
        )


def is_running(client: Client, job: Job) -> bool:
    return client.job(job["id"])["state"] == "running"


def test_the_scheduler_s_clock_is_set(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(open_directory)
    stack = Stack(open_directory / "stack", [NodeSpec(2)])
    with stack:
        stack.scheduler.kill()
        with monkeypatch.context() as patch:
            for name, value in clock.environment.items():
                patch.setenv(name, value)
            stack.scheduler.start().wait()
        with Client(stack.url) as client:
            wait_until("the node reports", lambda: len(client.gpus()) == 2)
            steps_do_no_harm(client, clock)
            assert submit(client, "true")["submitted_at"] < time.time() - 3000, "its clock was set"


def test_the_clock_of_a_host_with_master_and_agent_is_set(open_directory: Path) -> None:
    """Mesos' timers go by the time of day: it starts anew when that is set back, or stands still for an hour."""
    clock = Clock(open_directory)
    stack = Stack(open_directory / "stack", [NodeSpec(2)], executor_environment=clock.environment)
    mesos = (*stack.cluster.masters, *stack.cluster.agents)
    for process in mesos:
        process.host = Clocked("", process.ip, clock)
    with stack, Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        pids = [process.pid for process in mesos]
        steps_do_no_harm(client, clock)
        (monitor,) = executors(stack, "gpu-monitor")
        assert str(LIBRARY) in {each.path for each in monitor.memory_maps()}, "its clock was set"
        assert [process.pid for process in mesos] == pids
        for process in mesos:
            assert "the time of day was set back by 7200 s: starting anew" in process.log.read_text()
