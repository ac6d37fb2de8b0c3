"""What goes wrong: each fault on what its act's number chooses."""

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.local.network import Host, Way
from mesos_gpu.local.processes import Process
from mesos_gpu.local.stack import SchedulerProcess
from tests.soak.acts import Act
from tests.soak.hosts import RIGHT
from tests.soak.rig import Rig

_WAYS: Final[tuple[Way, ...]] = ("from", "to", "both")
_KBIT_S: Final = 2000
_LOST: Final = 0.15  # of packets
_STEPS: Final = ("+1h", "-1h")


@dataclass(slots=True)
class Injected:
    """A fault that is in the world now.

    Attributes:
        what: To whom.
        heal: Undoes it.
        times: How many processes it killed; else 1.
        agent: Whose node it hit, counted from 0; None: no node alone.
        again: Ids of tasks whose work may be done again for it, for nobody could tell of their end.
        wiped: Whether the node forgot all of its tasks.
    """

    what: str
    heal: Callable[[], None] = lambda: None
    times: int = 1
    agent: int | None = None
    again: frozenset[str] = frozenset()
    wiped: bool = False


@dataclass(slots=True)
class Faults:
    """Injects them into a rig; a host's network, its power and a clock have one fault at a time each."""

    rig: Rig
    _busy: set[str] = field(default_factory=set)

    def inject(self, act: Act) -> Injected | None:
        """Do it; None: there is nothing that it can be done to now."""
        chance = random.Random(act.pick)
        word, _, rest = act.kind.partition(" ")
        if word == "cut":
            return self._cut(chance, *rest.split("-"))
        if word in ("slow", "lose"):
            return self._worsen(chance, word)
        by_kind: dict[str, Callable[[random.Random], Injected | None]] = {
            "kill executor": lambda chance: self._kill_executors(chance, "w", 2),
            "kill monitor": lambda chance: self._kill_executors(chance, "gpu-monitor", 2),
            "kill keeper": lambda chance: self._kill_executors(chance, "gpu-keeper", 3),
            "zookeepers down": self._zookeepers_down,
            "wipe agent": self._wipe,
            "reboot agent": self._reboot,
            "roll monitors": self._roll,
        }
        if act.kind in by_kind:
            return by_kind[act.kind](chance)
        return {"kill": self._kill, "pause": self._pause, "clock": self._set_clock}[word](chance, rest)

    def heal_all(self) -> None:
        """Every network and clock as it was, and nobody stopped."""
        for process in self.rig.tended:
            _send(process, signal.SIGCONT)
        for host in self.rig.hosts:
            host.heal()
        self.rig.machines.heal()
        self._busy.clear()

    def _one(self, chance: random.Random, role: str) -> tuple[Process | SchedulerProcess, int | None]:
        """Who plays a role, and whose node it is."""
        if role == "scheduler":
            return self.rig.leading_scheduler(), None
        if role == "standby":
            leader = self.rig.leading_scheduler()
            others = [each for each in self.rig.schedulers if each is not leader]
            return chance.choice(others or [leader]), None
        if role == "master":
            return self.rig.leading_master(), None
        if role == "zookeeper":
            return chance.choice(self.rig.cluster.zookeepers), None
        number = chance.randrange(len(self.rig.cluster.agents))
        return self.rig.cluster.agents[number], number

    def _kill(self, chance: random.Random, role: str) -> Injected | None:
        process, agent = self._one(chance, role)
        if not process.running:
            return None
        process.kill()
        return Injected(process.url, agent=agent)

    def _pause(self, chance: random.Random, role: str) -> Injected | None:
        process, agent = self._one(chance, role)
        if not process.running:
            return None
        _send(process, signal.SIGSTOP)
        return Injected(process.url, lambda: _send(process, signal.SIGCONT), agent=agent)

    def _kill_executors(self, chance: random.Random, prefix: str, most: int) -> Injected | None:
        executors = self.rig.executors(prefix)
        victims = chance.sample(sorted(executors), min(most, len(executors)))
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        tasks = frozenset(executors[pid] for pid in victims)
        return Injected(", ".join(sorted(tasks)), times=len(victims), again=tasks) if victims else None

    def _zookeepers_down(self, _: random.Random) -> Injected | None:
        servers = self.rig.cluster.zookeepers
        kept = contextlib.ExitStack()
        for server in servers:
            kept.enter_context(self.rig.kept_down(server))
            server.kill()
        return Injected("all", kept.close) if servers else None

    def _wipe(self, chance: random.Random) -> Injected:
        number = chance.randrange(len(self.rig.cluster.agents))
        agent = self.rig.cluster.agents[number]
        with self.rig.kept_down(agent):
            agent.kill()
            for name in ("meta", "slaves"):
                shutil.rmtree(agent.directory / "work" / name, ignore_errors=True)
            (agent.directory / "work").mkdir(exist_ok=True)
        return Injected(agent.url, agent=number, wiped=True)

    def _reboot(self, chance: random.Random) -> Injected | None:
        number = chance.randrange(len(self.rig.cluster.agents))
        agent, name = self.rig.cluster.agents[number], f"power {number}"
        if name in self._busy:
            return None
        self._busy.add(name)
        off = contextlib.ExitStack()
        off.callback(self._busy.discard, name)
        off.enter_context(self.rig.kept_down(agent))
        agent.kill()
        tasks = self.rig.executors("w", agent.directory).values()
        self.rig.machines.reboot(number)
        return Injected(agent.url, off.close, agent=number, again=frozenset(tasks))

    def _roll(self, _: random.Random) -> Injected | None:
        if "program" in self._busy:
            return None
        self._busy.add("program")
        self.rig.program.replace()
        return Injected("all", lambda: self._busy.discard("program"))

    def _set_clock(self, chance: random.Random, role: str) -> Injected | None:
        process, agent = self._one(chance, role)
        name = f"clock {process.url}"
        if name in self._busy:
            return None
        self._busy.add(name)
        offset = chance.choice(_STEPS)
        self.rig.machines.set(process.url, offset)

        def heal() -> None:
            self.rig.machines.set(process.url, RIGHT)
            self._busy.discard(name)

        return Injected(f"{process.url} {offset}", heal, agent=agent)

    def _hosts(self, chance: random.Random, role: str) -> tuple[list[Host], int | None]:
        """Hosts of a role, and whose node the first is."""
        if role == "masters":
            return [_host(each) for each in self.rig.cluster.masters], None
        process, agent = self._one(chance, role)
        return [_host(process)], agent

    def _cut(self, chance: random.Random, one: str, other: str) -> Injected | None:
        """Cut between two roles, at the first one's hosts."""
        (here, agent), (there, node) = self._hosts(chance, one), self._hosts(chance, other)
        if here == there:  # two agents that are one: the next one, then
            agents = self.rig.cluster.agents
            there = [_host(agents[((agent or 0) + 1) % len(agents)])]
        if self._busy & {host.namespace for host in here}:
            return None
        way, mine, theirs = chance.choice(_WAYS), [host.ip for host in here], [host.ip for host in there]
        for host in here:
            host.cut([ip for ip in theirs if ip != host.ip], way)
        hit = agent if agent is not None else node
        return Injected(f"{mine} {way} {theirs}", self._healing(here), agent=hit)

    def _worsen(self, chance: random.Random, word: str) -> Injected | None:
        host = chance.choice(self.rig.hosts)
        if host.namespace in self._busy:
            return None
        if word == "slow":
            host.slow(_KBIT_S)
        else:
            host.lose(_LOST)
        ips = [agent.ip for agent in self.rig.cluster.agents]
        return Injected(host.ip, self._healing([host]), agent=ips.index(host.ip) if host.ip in ips else None)

    def _healing(self, hosts: Sequence[Host]) -> Callable[[], None]:
        names = {host.namespace for host in hosts}
        self._busy |= names

        def heal() -> None:
            for host in hosts:
                host.heal()
            self._busy.difference_update(names)

        return heal


def _host(process: Process | SchedulerProcess) -> Host:
    assert process.host is not None
    return process.host


def _send(process: Process | SchedulerProcess, number: int) -> None:
    if process.running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
