"""Common parts of the master and agent programs: reading of flags before Mesos gets them, and handling of changes of
the system clock.

Only the standard library is used, and little of it: these programs start with a bare interpreter.
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

#: Flags that libprocess reads from its environment; main.cpp passes them on too.
_OF_LIBPROCESS: Final = ("ip", "port", "advertise_ip", "advertise_port")
_ZK, _FILE = "zk://", "file://"
#: A smaller step back only stalls Mesos for that long, and a restart would take as long.
BACK_S: Final = 5.0
#: A smaller step ahead stalls Mesos for less than this.
AHEAD_S: Final = 1.0
_LOOK_S: Final = 1.0
_AT_ONCE_S: Final = 0.05
_STREAMS: Final = 2  # the highest descriptor of the standard streams
#: Byte that a program of the cluster waits for on its standard input.
GO: Final = b"\n"


class ZooKeeper:
    """ZooKeeper URL zk://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PATH.

    Attributes:
        servers: Servers as HOST:PORT,HOST:PORT.
        credentials: USER:PASSWORD; "" for none.
        path: Path, with leading slash, of the node below which a cluster keeps everything.

    Raises:
        CallFailed: The text is not such a URL.
    """

    def __init__(self, url: str) -> None:
        rest, self._url = url.removeprefix(_ZK), url
        authority, slash, path = rest.partition("/")
        self.credentials, _, self.servers = authority.rpartition("@")
        self.path = slash + path
        if not url.startswith(_ZK) or not self.servers or len(self.path) < 2:
            raise CallFailed(f"--zk={url}: not of the form zk://HOST:PORT,HOST:PORT/PATH")

    def __str__(self) -> str:
        """Return the URL."""
        return self._url


def given(argv: list[str], not_wired: Mapping[str, str]) -> dict[str, str]:
    """Return flags by name, also those of the environment (MESOS_NAME). --name means true, and --no-name false.

    Args:
        argv: Flags of the form --name=value.
        not_wired: Flags whose code is not in the library, with the only allowed value of each; "" for none.

    Raises:
        CallFailed: An argument is not a flag, or a flag needs code that is not in the library.
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
            remedy = f"the only value is {only}" if only else "leave it out"
            raise CallFailed(
                f"--{name}={flags[name]} is not in this Mesos: {remedy}, or run Mesos' own binaries"
            )
    return flags


def listen(flags: Mapping[str, str], port: int) -> None:
    """Set the environment from which libprocess takes its addresses; must be called before libprocess starts.

    Args:
        flags: Flags as returned by `given`.
        port: Port if no flag gives one.
    """
    os.environ.setdefault("LIBPROCESS_PORT", str(port))
    for name in _OF_LIBPROCESS:
        if flags.get(name):
            os.environ[f"LIBPROCESS_{name.upper()}"] = flags[name]


def zookeeper(value: str) -> ZooKeeper | None:
    """Return the ZooKeeper of the flag --zk; None for "".

    Args:
        value: zk://… URL, or file://PATH of a file with it, so that its password is not on the command line.

    Raises:
        CallFailed: The file cannot be read, or the URL is invalid.
    """
    if value.startswith(_FILE):
        try:
            with open(value.removeprefix(_FILE)) as file:
                value = file.read().strip()
        except OSError as error:
            raise CallFailed(f"--zk={value}: {error.strerror}") from None
    return ZooKeeper(value) if value else None


def ahead() -> float:
    """Return by how many seconds the system time is ahead of the monotonic clock."""
    while True:
        before, now, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < _AT_ONCE_S:  # the process was not suspended between the readings
            return now - before


class Watch:
    """Detector of steps of the system time.

    Args:
        ahead: Function that returns the difference of system time and monotonic clock.
    """

    def __init__(self, ahead: Callable[[], float] = ahead) -> None:
        self._ahead = ahead
        self._latest = self._farthest = ahead()

    def step_s(self) -> float:
        """Return the seconds by which the system time was set, if large enough to matter; else 0.

        A positive number is the step ahead since the last call. A negative number is how far the time is behind its
        furthest advance; it counts also when a step ahead is undone, because timers were created meanwhile.
        """
        before, self._latest = self._latest, self._ahead()
        self._farthest = max(self._farthest, self._latest)
        if (back_s := self._farthest - self._latest) > BACK_S:
            return -back_s
        ahead_s = self._latest - before
        return ahead_s if ahead_s > AHEAD_S else 0.0


def watch_clock(name: str, lib: Mesos) -> None:
    """Keep Mesos working when the system time is set, and log such a change to standard error.

    Mesos' timers use the system time, and so does the schedule by which it checks them. After a step ahead, a check
    that was scheduled before prevents all others, for a minute after an agent's start: ends of tasks go unnoticed. So
    checks are scheduled again. After a step back, waiting timers wait until the time has caught up, even if it is
    corrected at once: offers, status updates and ends of tasks stall. So the program restarts itself in its process. An
    agent recovers its running tasks, and of several masters another one leads.

    Args:
        name: Name of the program for messages.
        lib: Loaded library of Mesos.
    """
    threading.Thread(target=_watch, args=(name, Watch(), lib), daemon=True).start()


def _watch(name: str, clocks: Watch, lib: Mesos) -> None:
    never = threading.Event()
    while (step_s := clocks.step_s()) >= 0:
        if step_s:
            _say(f"{name}: the time of day was set ahead by {step_s:.0f} s: timers were rescheduled")
            lib.plan_timers()
        never.wait(_LOOK_S)
    _say(
        f"{name}: the time of day was set back by {-step_s:.0f} s: restarting, because timers would wait as long"
    )
    again()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def again() -> None:
    """Execute this very command again in this process, which passes on only its standard streams."""
    reads, writes = os.pipe()
    os.write(writes, GO)
    os.dup2(reads, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > _STREAMS:
            with contextlib.suppress(OSError):  # closed meanwhile
                os.set_inheritable(int(name), False)
    os.execv(sys.executable, sys.orig_argv)
