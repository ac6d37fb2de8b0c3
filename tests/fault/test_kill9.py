"""kill -9 of every part, each under load: the same jobs finish, each once, and every GPU is free at the end."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import read_until, started
from tests.contract.events.receiver import Receiver, told

CARDS, JOBS = 4, 6  # more jobs than cards
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def kill_scheduler(stack: Stack) -> None:
    stack.scheduler.kill()
    stack.scheduler.start().wait()


def kill_agent(stack: Stack) -> None:
    stack.cluster.agents[0].restart()


def kill_master(stack: Stack) -> None:
    stack.cluster.master.restart()
    for agent in stack.cluster.agents:
        agent.wait()


def executors(stack: Stack, prefix: str) -> list[psutil.Process]:
    """Executor processes by the start of their executor id: the agent sets it, the task's own id it does not."""
    processes = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            named = env.get("MESOS_EXECUTOR_ID", "").startswith(prefix) and "MESOS_TASK_ID" not in env
            ours = env.get("MESOS_DIRECTORY", "").startswith(f"{stack.directory}/")
            words = " ".join(process.cmdline())
            runs = "mesos-gpu-executor" in words or "isolator" in words  # from one file, or as it was written
            if named and ours and runs and process.name().startswith("python"):
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def kill_executor(stack: Stack, number: int = 0, prefix: str = "load-") -> None:
    """Kill one of the executors of these jobs: by its number among them, from the oldest on."""

    def is_killed() -> bool:
        victims = sorted(executors(stack, prefix), key=lambda each: each.create_time())
        if victims:
            victims[number % len(victims)].kill()
        return bool(victims)

    wait_until(f"an executor of {prefix}* is killed", lambda: _if_alive(is_killed))


def _if_alive(kill: Callable[[], bool]) -> bool:
    """Return what `kill` returns, and False if the process has ended meanwhile."""
    try:
        return kill()
    except psutil.NoSuchProcess:
        return False


def kill_monitor(stack: Stack) -> None:
    kill_executor(stack, prefix="gpu-monitor")


VICTIMS = [kill_scheduler, kill_agent, kill_master, kill_executor, kill_monitor]
GROUPS = [(kill,) for kill in VICTIMS] + list(combinations(VICTIMS, 2))
#: Components that `make test` kills here, each alone; the master and pairs are for long runs.
GATE = [(kill_scheduler,), (kill_agent,), (kill_executor,), (kill_monitor,)]


@pytest.mark.parametrize(
    "kills",
    [pytest.param(kills, marks=[] if kills in GATE else [pytest.mark.long]) for kills in GROUPS],
    ids=lambda kills: " and ".join(kill.__name__ for kill in kills),
)
def test_jobs_finish_once_each_after_a_kill(
    stack: Stack, client: Client, open_directory: Path, kills: Sequence[Callable[[Stack], None]]
) -> None:
    done = open_directory / f"done-{time.monotonic_ns()}"
    done.touch()
    done.chmod(0o666)
    # The word is written at the end: a launch that was cut short has not said it.
    command = f"sleep 2.5; echo $MESOS_GPU_JOB_ID >> {done}"
    request = {"name": "load", "command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32}
    ids = [client.submit(request)["id"] for _ in range(JOBS)]
    # What is half-way through its launch may be lost with its agent, and is launched again: wait for the rest.
    wait_until("every GPU works", lambda: list(states(client, ids).values()).count("running") == CARDS)

    with ThreadPoolExecutor(len(kills)) as pool:  # at once
        list(pool.map(lambda kill: kill(stack), kills))

    wait_until("all have finished", lambda: set(states(client, ids).values()) == {"finished"}, 120)
    assert Counter(done.read_text().split()) == Counter(ids)
    jobs = [client.job(job_id) for job_id in ids]
    assert {job["attempts"] for job in jobs} == {1}, "a fault used up an attempt"
    if kill_executor not in kills:
        assert {job["launches"] for job in jobs} == {1}, "what ran was left running"
    everything_is_free(stack, client)


def states(client: Client, ids: list[str]) -> dict[str, str]:
    state_by_job = {job["id"]: job["state"] for job in client.jobs()}
    return {job_id: state_by_job[job_id] for job_id in ids}


def everything_is_free(stack: Stack, client: Client) -> None:
    nodes, gpus = len(stack.nodes), sum(node.gpus for node in stack.nodes)
    wait_until("all monitors report", lambda: (monitors(client), len(client.gpus())) == (nodes, gpus), 60)
    assert [g["uuid"] for g in client.gpus() if g["task_id"]] == []
    for number in range(1, nodes + 1):
        ledger = Ledger(stack.directory / "nodes" / str(number) / "ledger.sqlite")
        wait_until(f"the ledger of node {number} is empty", partial(is_empty, ledger))

    def in_use() -> float:
        (framework,) = stack.cluster.master.state()["frameworks"]
        return float(framework["used_resources"]["gpus"])

    wait_until("Mesos has all GPUs back", lambda: in_use() == 0)


def is_empty(ledger: Ledger) -> bool:
    return not ledger.holdings()


def monitors(client: Client) -> int:
    return sum(node["state"] == "up" for node in client.nodes())


@pytest.mark.long
def test_events_are_sent_once_each_though_the_scheduler_is_killed_meanwhile(
    stack: Stack, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", stack.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    with Receiver() as receiver, ExitStack() as ended:
        allowed = "--webhook-to", f"127.0.0.1:{receiver.port}"
        stack.scheduler.kill()
        stack.scheduler.start(*allowed).wait()
        follower = ended.enter_context(started("events", "-f", "--json", stderr=subprocess.DEVNULL))
        assert follower.stdout is not None
        kinds = ["submitted", "started", "finished"]
        hook = {"url": f"{receiver.url}/hook", "kinds": kinds}
        client.call("PUT", "/v1/webhooks/told", dict[str, Any], body=hook)
        receiver.status = 503
        request = {"name": "told", "command": "sleep 1", "gpus": 1, "cpus": 0.1, "mem_mib": 32}
        notified = {**request, "notify": [f"{receiver.url}/notify"]}
        ids = [client.submit(notified)["id"] for _ in range(3)]
        wait_until("it is told of them", lambda: receiver.of("/hook"))
        lines = read_until(follower.stdout.fileno(), ids[0].encode())
        stack.scheduler.kill()
        receiver.status = 200
        stack.scheduler.start(*allowed).wait()
        wait_until("all have finished", lambda: set(states(client, ids).values()) == {"finished"}, 90)

        every = {(kind, job) for kind in kinds for job in ids}
        wait_until("all is told", lambda: {*told(receiver, "/hook")} == every, 60)
        wait_until("and to whom they name", lambda: len(told(receiver, "/notify")) == len(ids), 60)
        bodies = {json.loads(taken.body)["data"]["number"]: taken.body for taken in receiver.of("/hook")}
        assert len(bodies) == len(every), "each has one number, however often it was tried"
        assert list(bodies) == sorted(bodies), "they came in their order"
        assert sorted(told(receiver, "/notify")) == sorted(("finished", job) for job in ids)

        lines = read_until(follower.stdout.fileno(), f'"number": {max(bodies)}'.encode(), seen=lines)
        told_too = [int(number) for number in re.findall(rb'"number": (\d+), [^\n]*"job_id": "told-', lines)]
        assert told_too == sorted(set(told_too)), "who follows is told each once"
        assert {*bodies} <= {*told_too}
    past = client.call("GET", "/v1/history", dict[str, Any], {"named": "told"})["jobs"]
    assert {job["id"] for job in past} == {*ids}
    assert all(job["gpu_hours"] * 3600 >= 1 and job["gpu_models"] for job in past)
    stack.scheduler.kill()
    stack.scheduler.start().wait()
    everything_is_free(stack, client)


@pytest.mark.long
def test_a_killed_owner_leaves_nothing_after_the_next_start(open_directory: Path) -> None:
    """The process that runs the whole stack is killed; a start in the same directory cleans up."""
    directory = open_directory / "orphan"
    pid = os.fork()
    if pid == 0:  # pragma: no cover - ends by SIGKILL
        try:
            Stack(directory, [NodeSpec(1)]).start()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert marked(directory), "its children outlive it"
    with Stack(directory, [NodeSpec(1)]):
        pass
    assert marked(directory) == []
    assert not directory.exists()


def marked(directory: Path) -> list[int]:
    pids = []
    for process in psutil.process_iter():
        try:
            if any(str(directory) in value for value in process.environ().values()):
                pids.append(process.pid)
        except psutil.Error:
            continue
    return pids
