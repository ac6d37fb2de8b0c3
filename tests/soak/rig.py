"""The cluster that a soak runs on, and what it asks the kernel of it."""

import contextlib
import http.client
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.cli.client import Client, Refused, Unreachable
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local.network import Host
from mesos_gpu.local.processes import Master, Process, poll
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.soak.evidence import Evidence
from tests.soak.hosts import Hosts
from tests.soak.program import Program
from tests.soak.tending import Tending, Watching

T = TypeVar("T")
GIVE_UP_S: Final = 150.0
GPUS: Final = 2  # of each node
_MAX_LOG: Final = 20_000_000  # bytes
_ARGUMENTS: Final = ("--share-linger", "5", "--report-interval", "2", "--unreachable-timeout", "60")
_QUEUES: Final = """\
queues:
  production: {guarantee_gpus: 1}
  default: {guarantee_gpus: GUARANTEED}
  dev: {notice_s: 1}
"""


class Latest(Client):
    """Wants what is true of all that was answered before: no copy of a standby, no leader that may have been
    deposed."""

    def __init__(self, reach: str, *, read_timeout_s: float) -> None:
        """Connect to nobody yet."""
        super().__init__(reach, read_timeout_s=read_timeout_s)
        self._session.headers["Cache-Control"] = "no-cache"


class Rig:
    """A context manager. Whatever of the cluster ends is started again at once, as systemd would."""

    def __init__(self, directory: Path, small: bool = False, *, clocks: bool = False) -> None:
        """Nothing runs yet.

        Args:
            directory: That all users may pass.
            small: One master, two agents, and no hosts of their own.
            clocks: Whether those of hosts can be set.
        """
        nodes = [NodeSpec(GPUS)] * (2 if small else 3)
        self.small, self.machines = small, Hosts(directory / "hosts", clocks)
        self.program = Program(directory / "monitor.pyz")
        self.stack = Stack(
            directory / "stack",
            nodes,
            masters=1 if small else 3,
            schedulers=1 if small else 2,
            hosts=not small,
            secure=not small,
            scheduler_arguments=(*_ARGUMENTS, "--monitor-command", self.program.command),
            executor_environment={"MESOS_GPU_RECHECK_S": "1", **({} if small else self.machines.environment)},
        )
        if not small:
            self.machines.take(self.stack)
        self.cluster = self.stack.cluster
        self.evidence = Evidence(directory / "evidence")
        names = [
            simulated_gpus(GPUS, node.model, seed=f"node{number}") for number, node in enumerate(nodes, 1)
        ]
        self.cards = [[str(gpu.id) for gpu in gpus] for gpus in names]  # of each agent
        self._directory, self._own = directory, threading.local()
        self._tending, self._watching = Tending(lambda: self.tended), Watching(self.stack)

    @property
    def switches(self) -> dict[str, int]:
        """How often another master, and another scheduler, came to lead."""
        return self._watching.switches

    @property
    def deposed(self) -> int:
        """How often a scheduler that led said that it leads no more: it was paused or cut off, or lost ZooKeeper."""
        return sum(
            each.log.read_bytes().count(b"this scheduler is no longer the leader") for each in self.schedulers
        )

    @property
    def schedulers(self) -> list[SchedulerProcess]:
        """All of them."""
        return list(self.stack.schedulers)

    def leading_scheduler(self) -> SchedulerProcess:
        """Which of them leads, as was seen last; at first the first."""
        return next(
            (each for each in self.schedulers if each.url == self._watching.scheduler), self.schedulers[0]
        )

    def leading_master(self) -> Master:
        """Which of them leads, as was seen last; at first the first."""
        masters = self.cluster.masters
        return next((each for each in masters if each.url == self._watching.master), masters[0])

    @contextlib.contextmanager
    def kept_down(self, process: Process | SchedulerProcess) -> Iterator[None]:
        """The process is not started again meanwhile."""
        with self._tending.without(process):
            yield

    @property
    def tended(self) -> list[Process | SchedulerProcess]:
        """All that must run."""
        return [*self.cluster.zookeepers, *self.cluster.masters, *self.cluster.agents, *self.schedulers]

    @property
    def hosts(self) -> list[Host]:
        """Hosts with a network of their own."""
        return list(self.cluster.network.hosts.values()) if self.cluster.network else []

    def hostname(self, agent: int) -> str:
        """What the scheduler calls the node of an agent, counted from 0."""
        return self.cluster.agents[agent].ip

    def ask(self, do: Callable[[Client], T], *, leader: bool = False) -> T:
        """Ask a scheduler that answers, again and again: it must be something that can be done twice.

        Args:
            do: Asks it.
            leader: Whether it is the leader's to say: a standby's answer may be old.

        Raises:
            Unreachable: None answered for long.
            Refused: One refused it, and not for want of a leader.
        """
        give_up_at = time.monotonic() + GIVE_UP_S
        for turn in itertools.count():
            try:
                return self.ask_once(do, turn, leader=leader)
            except (Unreachable, Refused) as error:
                if not is_away(error) or time.monotonic() > give_up_at:
                    raise
            time.sleep(0.2)
        raise AssertionError("there is always another turn")

    def ask_once(self, do: Callable[[Client], T], turn: int = 0, *, leader: bool = False) -> T:
        """Ask one scheduler, or that which leads; another in each turn. Raises what it raises."""
        one = self.leading_scheduler() if leader else self.schedulers[turn % len(self.schedulers)]
        kind, clients = Latest if leader else Client, self._own.__dict__.setdefault("clients", {})
        if (kind, one.url) not in clients:
            clients[kind, one.url] = kind(one.reach, read_timeout_s=10)
        return do(clients[kind, one.url])

    def start(self) -> Self:
        """Start all, and wait until every card is known."""
        self.evidence.make(card for cards in self.cards for card in cards)
        self.stack.start()
        try:
            self._watching.look()
            self.await_cards()
            path = self._directory / "queues.yaml"
            path.write_text(_QUEUES.replace("GUARANTEED", str(GPUS * len(self.cards) - 1)))
            self._command("queue", "apply", "--yes", str(path))
            self._tending.start()
            self._watching.start()
        except BaseException:
            self.stop()
            raise
        return self

    def await_cards(self, timeout_s: float = 60) -> None:
        """Wait until every node reports, and every card can be used.

        Raises:
            Unavailable: Not in time.
        """
        cards = sum(map(len, self.cards))

        def healthy() -> bool:
            gpus = self.ask(lambda client: client.gpus(), leader=True)
            return [gpu["health"] for gpu in gpus] == ["ok"] * cards

        poll("all cards", healthy, timeout_s, 0.2)

    def _command(self, *words: str) -> None:
        command = [sys.executable, "-m", "mesos_gpu", "--url", self.stack.reach, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"mesos-gpu {' '.join(words)}: {done.stdout}{done.stderr}"

    def stop(self) -> None:
        """End and remove it all."""
        self._tending.stop()
        self._watching.stop()
        self.stack.stop()
        self.machines.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def executors(self, prefix: str, below: Path | None = None) -> dict[int, str]:
        """Living executors of the cluster by pid, with their ids, which begin so. `below`: a directory of those that
        count; None: all do."""
        executors = {}
        for pid, environment in environments():
            executor = environment.get("MESOS_EXECUTOR_ID", "")
            ours = environment.get("MESOS_DIRECTORY", "").startswith(f"{below or self.stack.directory}/")
            if ours and executor.startswith(prefix) and "MESOS_TASK_ID" not in environment:
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().startswith(("python", "mesos-gpu")):
                        executors[pid] = executor
        # A child that has not begun its program yet looks the same, and is the task's.
        return {pid: name for pid, name in executors.items() if executors.get(_parent_of(pid)) != name}

    def mesos(self) -> dict[str, Any]:
        """What the leading master says of everything.

        Raises:
            OSError, http.client.HTTPException, AssertionError: None leads, or it does not answer.
        """
        leader = self.cluster.leader()
        assert leader is not None, "no master leads"
        return dict(leader.state())

    def keep(self, directory: Path, findings: Sequence[str]) -> None:
        """Copy what tells of an epoch: logs, what tasks wrote, the scheduler's jobs, Mesos' state."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "findings").write_text("\n".join(findings) + "\n")
        logs = [*self.stack.directory.rglob("log"), *self.stack.directory.rglob("stderr")]
        for path in (*logs, self.evidence.directory / "said"):
            name = str(path.relative_to(self._directory)).replace("/", "_")
            with contextlib.suppress(OSError):  # a sandbox may be removed meanwhile
                (directory / name).write_bytes(path.read_bytes()[-_MAX_LOG:])
        looks: dict[str, Callable[[], object]] = {
            "jobs.json": lambda: self.ask(lambda client: client.jobs(), leader=True),
            "nodes.json": lambda: self.ask(lambda client: client.nodes(), leader=True),
            "gpus.json": lambda: self.ask(lambda client: client.gpus(), leader=True),
            "mesos.json": self.mesos,
        }
        for name, look in looks.items():
            try:
                text = json.dumps(look(), indent=1)
            except (MesosGpuError, OSError, http.client.HTTPException, AssertionError) as error:
                text = f"{type(error).__name__}: {error}"
            (directory / name).write_text(text + "\n")

    def tails(self) -> str:
        """The end of the schedulers' logs."""
        return "\n".join(scheduler.tail()[-1500:] for scheduler in self.schedulers)


def _parent_of(pid: int) -> int:
    """0: the process has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_away(error: Unreachable | Refused) -> bool:
    """Whether it may be asked again: nobody was there who could do or keep it. It may have been done all the same."""
    return isinstance(error, Unreachable) or error.http_status in (502, 503, 504, 507)


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """The environment of every process that this one may look at, by pid."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                pairs = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace").split("\0")
                yield int(name), dict(pair.split("=", 1) for pair in pairs if "=" in pair)
