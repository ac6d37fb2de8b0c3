"""Hosts of the cluster that a soak runs on: agents' can be booted anew, and clocks of all but ZooKeeper's be set."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mesos_gpu.local.processes import Process
from mesos_gpu.local.stack import SchedulerProcess, Stack
from tests.remote.machines import Clock, Clocked, Machine, renumber

RIGHT: Final = "+0"  # what a clock that nobody set shows


class Hosts:
    """All of them; a cluster without hosts of its own has none that could be booted or set."""

    def __init__(self, directory: Path, clocks: bool) -> None:
        """Nothing runs yet.

        Args:
            directory: Of its own, that all users may pass; made.
            clocks: Whether they can be set. Then `time.sleep` of Python fails at once (EINVAL) where they can be: an
                executor that is killed just before its command begins says that it could not run it.
        """
        self._directory, self._here = directory, directory / "here"
        self._directory.mkdir()
        self._seen, self._has_clocks = self._clock("here"), clocks
        self._stack: Stack | None = None
        self._machines: list[Machine] = []
        self._clocks: dict[str, Clock] = {}

    def _clock(self, name: str) -> Clock:
        (self._directory / name).mkdir()
        return Clock(self._directory / name)

    @property
    def environment(self) -> Mapping[str, str]:
        """What executors must have to see the clock of their host; nothing where clocks cannot be set."""
        return self._seen.environment if self._has_clocks else {}

    def take(self, stack: Stack) -> None:
        """Boot the hosts of agents, and give masters and schedulers clocks. What runs there starts afterwards."""
        self._stack = stack
        for number, agent in enumerate(stack.cluster.agents):
            self._clocks[agent.url] = self._clock(agent.name)
            self._machines.append(Machine(agent, self._directory / f"{agent.name}-boots"))
            self._boot(number)
        if self._has_clocks:
            processes: list[Process | SchedulerProcess] = [*stack.cluster.masters, *stack.schedulers]
            for process in processes:
                clock = self._clocks[process.url] = self._clock(process.directory.name)
                assert process.host is not None
                process.host = Clocked(process.host.namespace, process.host.ip, clock)

    def _boot(self, number: int) -> None:
        machine = self._machines[number]
        machine.boot((self._directory / machine.agent.name, self._here), environment=self.environment)

    def reboot(self, number: int) -> None:
        """Cut the power of an agent's host, counted from 0, and boot it: its cards have other numbers, its service has
        not started."""
        assert self._stack is not None
        self._machines[number].cut_power()
        renumber(self._stack.inventory(number + 1))
        self._boot(number)

    def set(self, url: str, offset: str) -> None:
        """Set the clock of the host of the agent with this URL, or that of a master or scheduler; `offset` as of
        `Clock.set`."""
        self._clocks[url].set(offset)

    def heal(self) -> None:
        """All clocks are right."""
        for clock in self._clocks.values():
            clock.set(RIGHT)

    @property
    def mounts(self) -> list[str]:
        """Where hosts of agents have something mounted below their directories."""
        return [point for machine in self._machines for point in machine.mounts]

    def close(self) -> None:
        """All are off."""
        for machine in self._machines:
            machine.close()
