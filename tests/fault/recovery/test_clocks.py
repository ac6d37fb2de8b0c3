"""The time of day is set, forth and back, under work: of the scheduler, and of a host with all that is there."""

import os
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.libmesos import fetch
from mesos_gpu.libmesos.helpers import ROOT, python
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.fault.test_kill9 import executors
from tests.remote.machines import LIBRARY, NO_CLOCKS, Clock, Clocked

#: A program of libprocess with a timer of ten minutes, the first that it plans a look for. After a step of the clock it
#: waits for one of a tenth of a second, and says whether that was called.
TIMERS = f"""\
import ctypes, os, sys, threading, time
sys.path.insert(0, {ROOT!r})
from mesos_gpu.libmesos import program
from mesos_gpu.libmesos.cxx import Mesos, P, zeros
lib = Mesos(sys.argv[1])
lib.start_libprocess("timers", "timers-readwrite", "timers-readonly", ["timers"])
copies = ctypes.CFUNCTYPE(ctypes.c_bool, P, P, ctypes.c_int)(lambda *_: False)
kept = [copies]
def timer(after_s):
    called, function, duration = threading.Event(), zeros(32), zeros(16)
    calls = ctypes.CFUNCTYPE(None, P)(lambda _: called.set())
    kept.append(calls)
    for at, pointer in ((16, copies), (24, calls)):  # std::function {{16 bytes of its own; manager; invoker}}
        P.from_address(function + at).value = ctypes.cast(pointer, P).value
    ctypes.c_int64.from_address(duration).value = int(after_s * 1e9)  # Duration {{int64_t nanos}}
    lib["_ZN7process5Clock5timerERK8DurationRKSt8functionIFvvEE"](P(zeros(4096)), P(duration), P(function))
    return called
timer(600)
program.watch_clock("timers", lib)
begin = time.time()
print("planned", flush=True)
while time.time() < begin + 3000:
    threading.Event().wait(0.1)
print(timer(0.1).wait(60), flush=True)
os._exit(0)  # libprocess' threads are not to be waited for
"""
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
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


def test_timers_of_mesos_go_on_after_a_step_ahead(open_directory: Path) -> None:
    """A look that was planned for a later time keeps all that come before it from being planned."""
    clock = Clock(open_directory)
    with subprocess.Popen(
        [python(), "-ISc", TIMERS, fetch.libmesos()],
        env={**os.environ, **clock.environment, "LIBPROCESS_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "planned\n"
        clock.set("+1h")
        out, _ = program.communicate(timeout=120)
    assert out == "True\n"


def test_the_clock_of_a_host_with_master_and_agent_is_set(open_directory: Path) -> None:
    """Mesos' timers go by the time of day: it starts anew when that is set back, or stands still for an hour, and plans
    them anew when it is set ahead."""
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
            said = process.log.read_text()
            assert "the time of day was set ahead by 3600 s: timers were rescheduled" in said
            assert "the time of day was set back by 7200 s: restarting" in said
