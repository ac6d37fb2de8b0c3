"""What happens to whole machines, played on this one: the time of day is set, a host is booted anew, and numbers its
cards otherwise.
"""

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mesos_gpu.local import leftovers
from mesos_gpu.local.network import Host
from mesos_gpu.local.processes import Agent, poll

LIBRARY: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
NO_CLOCKS: Final = "needs faketime: apt-get install -y faketime"
NOTHING: Final[Mapping[str, str]] = {}
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Clock:
    """The time of day of processes with this environment; monotonic clocks go on as they do."""

    def __init__(self, directory: Path) -> None:
        """Show this machine's time. `directory`: of the clock's file."""
        self._file = directory / "clock"
        self.set("+0")

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process must have to see it, where its directory is the one that this clock was made in."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset: str) -> None:
        """Set it that far from what it was: `+1h`, see faketime(1)."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.chmod(0o644)
        new.replace(self._file)


@dataclass(frozen=True, slots=True)
class Clocked(Host):
    """A host, this machine itself if it has no namespace, whose processes see another clock than this machine's."""

    clock: Clock

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command, on that host, by that clock."""
        pairs = (f"{name}={value}" for name, value in self.clock.environment.items())
        words = ["env", *pairs, *command]
        return super(Clocked, self).inside(words) if self.namespace else words


@dataclass(frozen=True, slots=True)
class Booted(Host):
    """A host after one boot of several.

    Attributes:
        init: Its first process, whose files all others see.
        environment: What its services have besides.
    """

    init: int
    environment: Mapping[str, str]

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command, as a process of that boot: with the network of its host, if it has one of its own."""
        network = [f"--net=/run/netns/{self.namespace}"] if self.namespace else []
        files = [f"--mount=/proc/{self.init}/ns/mnt", f"--wdns={os.getcwd()}"]
        pairs = [f"{name}={value}" for name, value in self.environment.items()]
        return ["nsenter", *files, *network, "--", "env", *pairs, *command]


class Machine:
    """An agent's host that can be booted. Each boot has an id, and mounts that end with it."""

    def __init__(self, agent: Agent, directory: Path) -> None:
        """Nothing is booted yet.

        Args:
            agent: Its service: started after each boot by whoever starts it.
            directory: Of its own, where boots are noted; made.
        """
        self.agent, self._directory, self._boots = agent, directory, 0
        self._ip, self._namespace = agent.ip, agent.host.namespace if agent.host else ""
        self._init: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    def boot(self, *bound: tuple[Path, Path], environment: Mapping[str, str] = NOTHING) -> None:
        """Let the agent's next start be after another boot.

        Args:
            bound: Directories, and where its processes find them.
            environment: What the agent has besides.
        """
        self._boots += 1
        note = self._directory / f"boot-{self._boots}"
        note.write_text(f"{uuid.uuid4()}\n")
        mounts = [(note, Path(_BOOT_ID)), *bound]
        script = (
            'umount -lR /run/netns; while [ $# -gt 0 ]; do mount --bind "$1" "$2" || exit; shift 2; done; '
        )
        words = [str(path) for pair in mounts for path in pair]
        self._init = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{script} echo; exec sleep infinity", "sh", *words],
            env={"PATH": os.environ["PATH"], leftovers.MARK: str(self.agent.directory.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == b"\n", f"the host of {self.agent.name} was not booted"
        self.agent.host = Booted(self._namespace, self._ip, self._init.pid, environment)

    @property
    def mounts(self) -> list[str]:
        """Where its processes have something mounted."""
        return [] if self._init is None else leftovers.mounts(self.agent.directory, self._init.pid)

    def cut_power(self) -> None:
        """End the agent and all that it started, at once, and the cgroups of that; nobody is told."""
        self.agent.kill()
        stopped = set[int]()
        while new := self._running() - stopped:  # all of them, before one sees another's end
            _send(new, signal.SIGSTOP)
            stopped |= new
        poll(f"the end of what {self.agent.name} started", self._ended)
        self.close()

    def _groups(self) -> list[Path]:
        return [path for path in leftovers.cgroups([self.agent.cgroup_root]) if path.is_dir()]

    def _running(self) -> set[int]:
        """Pids of what the agent started."""
        running = set(_started_below(self.agent.directory))
        for path in self._groups():
            with contextlib.suppress(OSError):  # removed meanwhile
                running.update(map(int, (path / "cgroup.procs").read_text().split()))
        return running

    def _ended(self) -> bool:
        """Kill what runs; whether nothing did, and no cgroup was left."""
        for path in self._groups():  # version 1: what is frozen does not end
            with contextlib.suppress(OSError):
                (path / "freezer.state").write_text("THAWED")
        running = self._running()
        _send(running, signal.SIGKILL)
        if not running:
            for path in self._groups():
                path.rmdir()
        return not running

    def close(self) -> None:
        """Let the mounts of its latest boot go."""
        if self._init is not None:
            self._init.kill()
            self._init.wait()
            assert self._init.stdout is not None
            self._init.stdout.close()


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _started_below(directory: Path) -> Iterator[int]:
    """Processes whose environment says that an agent with this directory started them."""
    names = [f"{name}={directory}/".encode() for name in ("MESOS_DIRECTORY", "MESOS_SANDBOX")]
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                pairs = (each / "environ").read_bytes().split(b"\0")
                if any(pair.startswith(name) for pair in pairs for name in names):
                    yield int(each.name)


def renumber(inventory: Path) -> dict[str, int]:
    """Give each simulated card the minor number of the next; what each has now, by UUID."""
    document: dict[str, Any] = json.loads(inventory.read_text())
    minors = [card["minor"] for card in document["gpus"]]
    for card, minor in zip(document["gpus"], [*minors[1:], minors[0]], strict=True):
        card["minor"] = minor
    inventory.write_text(json.dumps(document))
    return {card["uuid"]: card["minor"] for card in document["gpus"]}
