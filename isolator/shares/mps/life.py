"""State machine of an MPS daemon, and readers for its log and the kernel's log. Pure.

`isolator.shares.mps.daemon` and the executor's watch turn observations into events; the table gives the
actions.

Sources: NVIDIA's MPS documentation, "Error containment": a client's fatal fault ends the work of all clients
of its card, and no new one is admitted until they have left. The log messages are those of daemon and server
535 and 550.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class State(Enum):
    """State of a daemon."""

    STARTING = "starting"  # its process runs, but has not answered yet
    ACTIVE = "active"
    FAULT = "fault"  # a client had a fatal fault: all clients must leave
    HUNG = "hung"  # its process runs, but does not answer
    GONE = "gone"  # no process runs, or none was ever started


class Event(Enum):
    """Observation of a daemon."""

    STARTED = "started"  # its process was started
    ANSWERS = "answers"  # and reports no fault
    SILENT = "silent"  # it accepts a request, but does not answer within the deadline
    ABSENT = "absent"  # no process listens at its pipes
    FAULT = "fault"  # its server or its log reports a fatal fault, and there are clients
    OVER = "over"  # as FAULT, but all clients have left
    EXITED = "exited"  # its process is gone
    OVERDUE = "overdue"  # it has been starting for too long


class Action(Enum):
    """Action on a daemon or its tasks."""

    OPEN = "open"  # shares may be added
    CLOSE = "close"  # no more shares may be added
    # its tasks end and are placed again; the infrastructure is blamed, except for the culprit
    EVICT = "evict"
    KILL = "kill"  # end all processes in its cgroups; the next share starts a new daemon


@dataclass(frozen=True, slots=True)
class Move:
    """Next state and actions for an event in a state."""

    to: State
    does: tuple[Action, ...] = ()


S, E, A = State, Event, Action

TABLE: Final[Mapping[tuple[State, Event], Move]] = MappingProxyType(
    {
        (S.STARTING, E.STARTED): Move(S.STARTING),
        (S.STARTING, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),
        (S.STARTING, E.SILENT): Move(S.STARTING),
        (S.STARTING, E.ABSENT): Move(S.STARTING),  # its sockets come after its process
        (S.STARTING, E.FAULT): Move(S.FAULT, (A.CLOSE, A.EVICT)),
        (S.STARTING, E.OVER): Move(S.ACTIVE, (A.OPEN,)),
        (S.STARTING, E.EXITED): Move(S.GONE, (A.KILL,)),
        (S.STARTING, E.OVERDUE): Move(S.GONE, (A.KILL,)),
        (S.ACTIVE, E.STARTED): Move(S.STARTING),  # it was ended and started again between two looks
        (S.ACTIVE, E.ANSWERS): Move(S.ACTIVE),
        # one silence may come from a host that is short of CPU
        (S.ACTIVE, E.SILENT): Move(S.HUNG, (A.CLOSE,)),
        (S.ACTIVE, E.ABSENT): Move(S.GONE, (A.CLOSE, A.EVICT, A.KILL)),
        (S.ACTIVE, E.FAULT): Move(S.FAULT, (A.CLOSE, A.EVICT)),
        (S.ACTIVE, E.OVER): Move(S.ACTIVE),
        (S.ACTIVE, E.EXITED): Move(S.GONE, (A.CLOSE, A.EVICT, A.KILL)),
        (S.ACTIVE, E.OVERDUE): Move(S.ACTIVE),
        (S.FAULT, E.STARTED): Move(S.STARTING),
        (S.FAULT, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),  # another server has replaced the one in fault
        (S.FAULT, E.SILENT): Move(S.HUNG, (A.EVICT,)),
        (S.FAULT, E.ABSENT): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.FAULT, E.FAULT): Move(S.FAULT, (A.EVICT,)),  # clients admitted meanwhile cannot work either
        (S.FAULT, E.OVER): Move(S.ACTIVE, (A.OPEN,)),
        (S.FAULT, E.EXITED): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.FAULT, E.OVERDUE): Move(S.FAULT),
        (S.HUNG, E.STARTED): Move(S.STARTING),
        (S.HUNG, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),
        (S.HUNG, E.SILENT): Move(S.HUNG, (A.EVICT,)),
        (S.HUNG, E.ABSENT): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.HUNG, E.FAULT): Move(S.FAULT, (A.EVICT,)),
        (S.HUNG, E.OVER): Move(S.ACTIVE, (A.OPEN,)),
        (S.HUNG, E.EXITED): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.HUNG, E.OVERDUE): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.GONE, E.STARTED): Move(S.STARTING),
        (S.GONE, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),  # another share's executor has started one
        (S.GONE, E.SILENT): Move(S.HUNG, (A.CLOSE,)),
        (S.GONE, E.ABSENT): Move(S.GONE),
        (S.GONE, E.FAULT): Move(S.FAULT, (A.CLOSE, A.EVICT)),
        (S.GONE, E.OVER): Move(S.ACTIVE, (A.OPEN,)),
        (S.GONE, E.EXITED): Move(S.GONE),
        (S.GONE, E.OVERDUE): Move(S.GONE),
    }
)


def step(state: State, event: Event) -> Move:
    """Return the next state and actions; the table covers every pair."""
    return TABLE[state, event]


@dataclass(frozen=True, slots=True)
class LogReading:
    """Faults in a daemon's log.

    Attributes:
        fault: Whether a server is in fault at the end of the log.
        met: Whether a server was in fault at any time.
        culprits: Pids of clients that the log names for the last fault.
    """

    fault: bool = False
    met: bool = False
    culprits: tuple[int, ...] = ()


#: Beginning of a line, "[2026-11-22 06:58:01.100 Other 10977] ". Commands are logged too, after "Cmd:", in
#: words that a client chooses; so the text of a fault must follow the beginning at once.
_HEAD: Final = r"^\[[^\]]*\] "
#: Strings in libcuda.so of 535.261.03 and 550.163.01, which the server runs.
_CLIENT_FAULT: Final = re.compile(_HEAD + r"Client process (\d+) encountered a fatal GPU error\.")
_FAULT: Final = re.compile(
    _HEAD + r"(Server is handling a fatal GPU error\.|Server encountered a fatal exception)"
)
#: Strings in nvidia-cuda-mps-control of 535.261.03; these events end the fault of a server.
_NEW_SERVER: Final = re.compile(_HEAD + r"(NEW SERVER \d+: Ready|Server \d+ exited with status -?\d+)")


def read_log(text: str) -> LogReading:
    """Read the faults in a log.

    Args:
        text: Log of the daemon and its servers in the order of writing; the first line may be cut.
    """
    fault, met, culprits = False, False, list[int]()
    for line in text.splitlines():
        client = _CLIENT_FAULT.search(line)
        if client or _FAULT.search(line):
            if not fault:
                culprits.clear()
            fault = met = True
            culprits += [int(client[1])] if client else []
        elif _NEW_SERVER.search(line):
            fault = False
    return LogReading(fault, met, tuple(dict.fromkeys(culprits)))


#: Source: NVIDIA's page on XID errors, "NVRM: Xid (PCI:0000:03:00): 31, pid=1194, name=python3, Ch 00000008, …".
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+), pid='?(\d+)")


@dataclass(frozen=True, slots=True)
class XidLine:
    """A line of the kernel's log about an XID error: bus address of the card, the XID, and the pid whose work
    caused it.
    """

    pci_bus: str
    xid: int
    pid: int


def read_xid(line: str) -> XidLine | None:
    """Parse a line of the kernel's log; None if it has no XID with a pid."""
    match = _XID.search(line)
    return None if match is None else XidLine(match[1].lower(), int(match[2]), int(match[3]))


def culprit(
    tasks: Collection[str], task_of: Mapping[int, str], xid_pids: Collection[int], log_pids: Collection[int]
) -> str | None:
    """Return the task that caused a fault; None if that is unknown.

    Args:
        tasks: Tasks on the card.
        task_of: Task of each pid that was a client.
        xid_pids: Pids in XID lines; the pid of the server itself identifies no task.
        log_pids: Pids in the server's log.
    """
    for pids in (xid_pids, log_pids):
        named = {task_of[pid] for pid in pids if pid in task_of} & set(tasks)
        if len(named) == 1:
            return next(iter(named))
    return next(iter(tasks)) if len(tasks) == 1 else None
