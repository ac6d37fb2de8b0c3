"""What the master and the agent have in common: what they make of their flags before Mesos sees them, and that they
go on when the time of day was set.

Only the standard library is used, and little of it: these programs start bare.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

from mesos_gpu.libmesos.cxx import CallFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from mesos_gpu.libmesos.cxx import Mesos

#: Flags that libprocess takes from its environment, as main.cpp hands them on.
_OF_LIBPROCESS: Final = ("ip", "port", "advertise_ip", "advertise_port")
_ZK, _FILE = "zk://", "file://"
#: For less than that Mesos stands still by itself: starting anew takes as long.
BACK_S: Final = 5.0
#: For less than that Mesos stands still by itself, too.
AHEAD_S: Final = 1.0
_LOOK_S: Final = 1.0
_AT_ONCE_S: Final = 0.05
_STREAMS: Final = 2  # the greatest descriptor of them
#: The byte that a program of the cluster waits for on its standard input.
GO: Final = b"\n"


class ZooKeeper:
    """zk://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PATH.

    Attributes:
        servers: As HOST:PORT,HOST:PORT.
        credentials: USER:PASSWORD; "" for none.
        path: Of the node below which a cluster has everything; with its slash.
    """

    def __init__(self, url: str) -> None:
        """Take a URL apart.

        Raises:
            CallFailed: It is no such URL.
        """
        rest, self._url = url.removeprefix(_ZK), url
        authority, slash, path = rest.partition("/")
        self.credentials, _, self.servers = authority.rpartition("@")
        self.path = slash + path
        if not url.startswith(_ZK) or not self.servers or len(self.path) < 2:
            raise CallFailed(f"--zk={url}: not of the form zk://HOST:PORT,HOST:PORT/PATH")

    def __str__(self) -> str:
        """The URL."""
        return self._url


def given(argv: list[str], not_wired: Mapping[str, str]) -> dict[str, str]:
    """Flags by name, also those of the environment, as MESOS_NAME; --name stands for true, and --no-name for false.

    Args:
        argv: --name=value each.
        not_wired: Flags whose code is not in the library; the one value that each may have, "" for none.

    Raises:
        CallFailed: One is no flag, or is not wired.
    """
    flags = {name[6:].lower(): value for name, value in os.environ.items() if name.startswith("MESOS_")}
    for argument in argv:
        if not argument.startswith("--"):
            raise CallFailed(f"{argument}: not of the form --name=value")
        name, equals, value = argument[2:].partition("=")
        negated = not equals and name.startswith("no-")
        flags[name[3:] if negated else name] = value if equals else str(not negated).lower()
    for name, only in not_wired.items():
        if flags.get(name, only).lower() != only.lower():
            may = f"it can only be {only}" if only else "leave it out"
            raise CallFailed(
                f"--{name}={flags[name]} is not in this Mesos: {may}, or run Mesos' own binaries"
            )
    return flags


def listen(flags: Mapping[str, str], port: int) -> None:
    """Tell libprocess where to listen and what to call itself. It must come before libprocess starts.

    Args:
        flags: As of `given`.
        port: That it listens at if no flag says.
    """
    os.environ.setdefault("LIBPROCESS_PORT", str(port))
    for name in _OF_LIBPROCESS:
        if flags.get(name):
            os.environ[f"LIBPROCESS_{name.upper()}"] = flags[name]


def zookeeper(value: str) -> ZooKeeper | None:
    """The flag --zk; None for "".

    Args:
        value: zk://…, or file://PATH of a file that holds it: nobody else then sees its password.

    Raises:
        CallFailed: The file cannot be read, or it is no such URL.
    """
    if value.startswith(_FILE):
        try:
            with open(value.removeprefix(_FILE)) as file:
                value = file.read().strip()
        except OSError as error:
            raise CallFailed(f"--zk={value}: {error.strerror}") from None
    return ZooKeeper(value) if value else None


def ahead() -> float:
    """How far the time of day is ahead of the clock that nobody sets, in seconds."""
    while True:
        before, now, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < _AT_ONCE_S:  # it was not stopped between the two
            return now - before


class Watch:
    """Compares the clocks."""

    def __init__(self, ahead: Callable[[], float] = ahead) -> None:
        """Begin with what they show now. `ahead`: asks them."""
        self._ahead = ahead
        self._latest = self._farthest = ahead()

    def step_s(self) -> float:
        """By how much the time of day was set, in seconds, if that counts; else 0. More than 0: so far ahead since the
        last look. Less: it is so far behind what it would be if it had never been set back, as after a step ahead that
        is undone, for timers were made meanwhile."""
        before, self._latest = self._latest, self._ahead()
        self._farthest = max(self._farthest, self._latest)
        if (back_s := self._farthest - self._latest) > BACK_S:
            return -back_s
        ahead_s = self._latest - before
        return ahead_s if ahead_s > AHEAD_S else 0.0


def watch_clock(name: str, lib: Mesos) -> None:
    """Have Mesos go on when the time of day was set, and say so on its standard error.

    Its timers go by the time of day, and it looks at them at times that it plans by that, too. Was it set ahead, a look
    that was planned before for a later time keeps all others from being planned, for a minute after an agent's start:
    the ends of tasks are not seen. So looks are planned anew. Was it set back, timers that wait do so until it has
    caught up, also when it is set right again at once: offers, status updates and the ends of tasks stand still. So the
    program starts anew, in its process. An agent takes up what runs there, and of several masters another one leads.

    Args:
        name: Of the program, for people.
        lib: That it runs.
    """
    threading.Thread(target=_watch, args=(name, Watch(), lib), daemon=True).start()


def _watch(name: str, clocks: Watch, lib: Mesos) -> None:
    never = threading.Event()
    while (step_s := clocks.step_s()) >= 0:
        if step_s:
            _say(f"{name}: the time of day was set ahead by {step_s:.0f} s: timers are planned anew")
            lib.plan_timers()
        never.wait(_LOOK_S)
    _say(
        f"{name}: the time of day was set back by {-step_s:.0f} s: starting anew, or timers would wait as long"
    )
    again()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def again() -> None:
    """Start this very command in this process. Of its files it has only its standard streams, as at its first start."""
    reads, writes = os.pipe()
    os.write(writes, GO)
    os.dup2(reads, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > _STREAMS:
            with contextlib.suppress(OSError):  # closed meanwhile
                os.set_inheritable(int(name), False)
    os.execv(sys.executable, sys.orig_argv)
