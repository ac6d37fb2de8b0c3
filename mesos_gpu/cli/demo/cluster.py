"""Demo of a cluster on hosts of its own, in network namespaces: each kind of leader is killed, and no work is lost."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local import network, zookeeper
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.local.zookeeper import ZooKeeper
from mesos_gpu.model.words import counted

MASTERS: Final = 3
SCHEDULERS: Final = 2
NODES: Final = tuple([NodeSpec(2)] * 3)
WORK_S: Final = 20
WAIT_S: Final = 60.0
T = TypeVar("T")


def play(directory: Path) -> int:
    """Start the cluster, run the demo and stop it; return the exit code.

    Raises:
        Unavailable: Not root, or a program is missing; the message names the program and how to install it.
    """
    network.check()
    zookeeper.check()
    story = Cluster(directory)
    try:
        story.run()
    finally:
        story.stop()
    return story.exit_code


class Cluster:
    """The demo of leader failures, and its checks."""

    def __init__(self, directory: Path) -> None:
        self._began_at = time.monotonic()
        self._stack = Stack(directory, NODES, masters=MASTERS, hosts=True, secure=True, schedulers=SCHEDULERS)
        self._failures: list[str] = []
        self._is_up = False

    @property
    def exit_code(self) -> int:
        """0 if all checks passed, else 1."""
        return 1 if self._failures else 0

    def _say(self, text: str) -> None:
        output.line(f"{time.monotonic() - self._began_at:6.1f} s  {text}")

    def _check(self, what: str, good: bool) -> None:
        self._say(f"{'ok' if good else 'WRONG'}: {what}")
        if not good:
            self._failures.append(what)

    def run(self) -> None:
        """Run all parts of the demo."""
        size = f"{MASTERS} masters with ZooKeeper, {SCHEDULERS} schedulers, {counted(len(NODES), 'agent')}"
        self._say(f"starting {size}: each on its own host, with authentication")
        self._stack.start()
        self._is_up = True
        cards = sum(node.gpus for node in NODES)
        self._await(f"all {cards} GPUs", lambda: len(self._ask(Client.gpus)) == cards)
        self._say(f"all is up: {cards} GPUs")
        jobs = [self._submit("work", f"sleep {WORK_S}; echo done") for _ in range(cards)]
        self._await("they run", lambda: self._states(jobs) == {"running"})
        self._say(f"{counted(cards, 'job')} of {WORK_S} s run, one on each GPU")
        framework = self._framework()
        self._kill_scheduler()
        self._kill_master()
        self._kill_zookeeper()
        self._check("the framework is the same", self._framework() == framework)
        self._check("all jobs run on, or have finished", self._states(jobs) <= {"running", "finished"})
        self._end([*jobs, self._submit("late", "echo done")])

    def _end(self, jobs: list[Job]) -> None:
        self._await("all have ended", lambda: all(ended(self._job(job)) for job in jobs))
        ends = [self._job(job) for job in jobs]
        done = sum(self._written(job) == "done\n" for job in jobs)
        self._check(f"{done} of {counted(len(jobs), 'job')} wrote what they had to, once", done == len(jobs))
        once = all((job["state"], job["attempts"], job["launches"]) == ("finished", 1, 1) for job in ends)
        self._check("each was started once, and finished", once)
        self._await("Mesos has all GPUs back", lambda: self._in_use() == 0)
        self._check("Mesos has all GPUs back", True)
        wrong = counted(len(self._failures), "thing")
        self._say(f"demo: {wrong} wrong, {counted(len(jobs) - done, 'job')} lost")

    def stop(self) -> None:
        """Stop and remove the cluster."""
        if self._is_up:
            self._stack.stop()
            self._say("all is stopped and removed")

    def _kill_scheduler(self) -> None:
        leader = self._stack.await_leader()
        leader.kill()
        began_at = time.monotonic()
        self._say("killed with SIGKILL: the scheduler that leads")
        poll("another scheduler", lambda: self._stack.leader() not in (None, leader), WAIT_S)
        self._say(f"the other scheduler leads, after {time.monotonic() - began_at:.1f} s")
        self._try_one("scheduler", began_at)
        leader.start()

    def _kill_master(self) -> None:
        cluster = self._stack.cluster
        leader = cluster.await_leader()
        leader.kill()
        began_at = time.monotonic()
        self._say(f"killed with SIGKILL: {leader.name}, which leads")
        another = poll("another master", lambda: _other(cluster.leader(), leader), WAIT_S)
        self._say(f"{another.name} leads, after {time.monotonic() - began_at:.1f} s")
        for agent in cluster.agents:
            agent.wait(WAIT_S)
        self._try_one("master", began_at)
        leader.start()

    def _kill_zookeeper(self) -> None:
        servers = self._stack.cluster.zookeepers
        leader = poll(
            "ZooKeeper's leader", lambda: next((server for server in servers if _leads(server)), None), WAIT_S
        )
        leader.kill()
        began_at = time.monotonic()
        self._say(f"killed with SIGKILL: {leader.name}, which leads")
        others = [server for server in servers if server is not leader]
        another = poll("another", lambda: next((server for server in others if _leads(server)), None), WAIT_S)
        self._say(f"{another.name} leads, after {time.monotonic() - began_at:.1f} s")
        self._try_one("ZooKeeper", began_at)
        leader.start()

    def _try_one(self, after: str, began_at: float) -> None:
        """Run a small job, to check that all parts work again."""
        job = self._submit("probe", "true", gpus=0)
        self._await(f"a job after the loss of a {after}", lambda: ended(self._job(job)))
        took_s = time.monotonic() - began_at
        self._check(f"a new job has run {took_s:.1f} s after that", self._job(job)["state"] == "finished")

    def _ask(self, do: Callable[[Client], T]) -> T:
        """Call a function with a client of the leading scheduler."""
        leader = self._stack.await_leader(WAIT_S)
        with Client(leader.reach) as client:
            client.patience_s = WAIT_S
            return do(client)

    def _submit(self, name: str, command: str, gpus: int = 1) -> Job:
        request = {"name": name, "command": command, "gpus": gpus, "cpus": 0.1, "mem_mib": 32}
        return self._ask(lambda client: client.submit(request))

    def _job(self, job: Job) -> Job:
        return self._ask(lambda client: client.job(job["id"]))

    def _states(self, jobs: list[Job]) -> set[str]:
        listed = self._ask(Client.jobs)
        return {entry["state"] for entry in listed if entry["id"] in {job["id"] for job in jobs}}

    def _written(self, job: Job) -> str:
        return self._ask(lambda client: client.logs(job["id"], stream="stdout", offset=0, length=1000))[
            "data"
        ]

    def _mesos(self) -> dict[str, Any]:
        [framework] = self._stack.cluster.await_leader().state()["frameworks"]
        return dict(framework)

    def _framework(self) -> str:
        return str(self._mesos()["id"])

    def _in_use(self) -> float:
        return float(self._mesos()["used_resources"]["gpus"])

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        poll(what, condition, WAIT_S, 0.1)


def _other(leader: T | None, than: T) -> T | None:
    return None if leader is than else leader


def _leads(server: ZooKeeper) -> bool:
    """Return whether a ZooKeeper server reports that it leads; False if it does not answer."""
    try:
        with socket.create_connection((server.ip, server.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"Mode: leader" in b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return False
