"""A scheduler over REST with a cluster in its process: launches run at once, and tasks end when a test says so."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.cli.client import Client
from mesos_gpu.engine.settings import Settings
from mesos_gpu.local.stack import NodeSpec, address
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.ports import Clock
from mesos_gpu.scheduler.daemon import Daemon
from tests.conftest import wait_until
from tests.doubles.fake_driver import FakeClock, RecordingStore
from tests.doubles.ready_cluster import ReadyAgent, ReadyCluster


class Site:
    """Nodes, the scheduler that launches on them, and its client.

    Args:
        nodes: Agents with their cards, named as those of a `Stack`.
        clock: Clock of the scheduler; without one, `clock` goes on where a test says so.
        settings: Settings of the engine that differ from the usual ones.
    """

    def __init__(self, nodes: Sequence[NodeSpec], clock: Clock | None = None, **settings: Any) -> None:
        """Start all of it."""
        self.clock, self._nodes, store = FakeClock(time.time()), nodes, RecordingStore()
        used = clock or self.clock
        agents = [_agent(number, spec) for number, spec in enumerate(nodes, 1)]
        self.cluster = ReadyCluster(agents, lambda event: self.daemon.put(event), used.now)
        made = Settings.of("executor", "monitor", **settings)
        self.daemon = Daemon(store, store.load(), self.cluster, used, made)
        self._server = serve(create_app(self.daemon, ApiSettings("http://w", "0.1.0")), "127.0.0.1", 0)
        self.client = Client(self._server.url)
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        gpus = sum(spec.gpus for spec in nodes)
        wait_until("the nodes report", lambda: len(self.client.gpus()) == gpus)

    def close(self) -> None:
        """End all of it."""
        self._server.stop()
        self.clock.set_between_turns(None)
        self.daemon.stop()

    def submit(self, name: str = "job", gpus: float = 0, **fields: object) -> str:
        """Submit a job; return its id."""
        request = {"name": name, "command": "sleep 600", "gpus": gpus, "cpus": 0.1, "mem_mib": 32}
        return self.client.submit({**request, **fields})["id"]

    def states(self, *jobs: str) -> list[str]:
        """Return the state of each job."""
        return [self.client.job(job)["state"] for job in jobs]

    def running(self, *jobs: str) -> None:
        """Wait until jobs run."""
        wait_until(f"{jobs} run", lambda: set(self.states(*jobs)) == {"running"})

    def hosts(self, *jobs: str) -> list[str]:
        """Return the host of the last launch of each job."""
        return [str(self.client.job(job)["hostname"]) for job in jobs]

    def end(self, job: str, state: str = "TASK_FINISHED") -> None:
        """Let the tasks of a job end by themselves, and wait until the scheduler has heard of it."""
        tasks = [TaskId(task["id"]) for task in self.client.tasks(job) if task["ended_at"] is None]
        for task in tasks:
            self.daemon.read(lambda _, task=task: self.cluster.end(task, state)).result(60)  # type: ignore[misc]

        def all_ended() -> bool:
            return all(task["ended_at"] for task in self.client.tasks(job) if task["id"] in tasks)

        wait_until(f"the tasks of {job} have ended", all_ended)

    def kill(self, *jobs: str) -> None:
        """Kill jobs and wait for their ends."""
        for job in jobs:
            self.client.kill(job)
        wait_until(f"the ends of {jobs}", lambda: set(self.states(*jobs)) <= {"killed", "finished"})

    def go_on(self, seconds: float) -> None:
        """Let time pass, in steps in which monitors report."""
        until = self.clock.time + seconds
        while self.clock.time < until:
            self.clock.time = min(self.clock.time + 1.0, until)
            for number in range(len(self._nodes)):
                self.cluster.report(number)
            self.daemon.read(lambda _: None).result(60)


@contextmanager
def site_of(nodes: Sequence[NodeSpec], clock: Clock | None = None, **settings: Any) -> Iterator[Site]:
    """Run a site for a block."""
    site = Site(nodes, clock, **settings)
    try:
        yield site
    finally:
        site.close()


def _agent(number: int, spec: NodeSpec) -> ReadyAgent:
    gpus = simulated_gpus(spec.gpus, spec.model, seed=f"node{number}")
    able = ((Ability.SHIM, ""),)
    return ReadyAgent(
        spec.hostname or address(number),
        tuple(replace(gpu, sharing=Sharing(gpu.memory_mib, able)) for gpu in gpus),
        spec.cpus,
        spec.mem_mib,
        spec.attributes,
        spec.zone,
    )
