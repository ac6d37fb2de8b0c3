"""The life of a daemon of MPS, as a table; what its log, and the kernel's, say of faults. Pure.

`isolator.shares.mps.daemon` looks at a daemon and makes events of what it sees; what is to be done follows from here.
Sources: NVIDIA's MPS documentation, "Error containment": a client's fatal fault ends the work of all clients of its
card, and no new one is let in until they have left. The words are those of the daemon and the server of 535 and 550.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class State(Enum):
    """Where a daemon stands."""

    STARTING = "starting"  # its process runs, and has not answered yet
    ACTIVE = "active"
    FAULT = "fault"  # a client has met a fatal fault: all must leave
    HUNG = "hung"  # its process is there, and does not answer
    GONE = "gone"  # there is no process; or nobody has made one


class Event(Enum):
    """What was seen of it."""

    STARTED = "started"  # its process was made
    ANSWERS = "answers"  # and nothing is wrong
    SILENT = "silent"  # it takes a question, and does not answer within the deadline
    ABSENT = "absent"  # nobody listens at its pipes
    FAULT = "fault"  # its server, or the log, tells of a fatal fault; there are clients
    OVER = "over"  # as FAULT, and the clients have left
    EXITED = "exited"  # its process is gone
    OVERDUE = "overdue"  # it has been starting for too long


class Action(Enum):
    """What is to be done."""

    OPEN = "open"  # shares may be added
    CLOSE = "close"  # no more
    EVICT = "evict"  # its tasks end and move: by the infrastructure's fault, but for the culprit's
    KILL = "kill"  # end all processes in its cgroups: the next share makes a new one


@dataclass(frozen=True, slots=True)
class Move:
    """What follows from an event in a state."""

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
        (S.ACTIVE, E.STARTED): Move(S.STARTING),  # it was ended between two looks, and made anew
        (S.ACTIVE, E.ANSWERS): Move(S.ACTIVE),
        (S.ACTIVE, E.SILENT): Move(S.HUNG, (A.CLOSE,)),  # once may be a host that is short of CPU
        (S.ACTIVE, E.ABSENT): Move(S.GONE, (A.CLOSE, A.EVICT, A.KILL)),
        (S.ACTIVE, E.FAULT): Move(S.FAULT, (A.CLOSE, A.EVICT)),
        (S.ACTIVE, E.OVER): Move(S.ACTIVE),
        (S.ACTIVE, E.EXITED): Move(S.GONE, (A.CLOSE, A.EVICT, A.KILL)),
        (S.ACTIVE, E.OVERDUE): Move(S.ACTIVE),
        (S.FAULT, E.STARTED): Move(S.STARTING),
        (S.FAULT, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),  # another server took the place of the one in fault
        (S.FAULT, E.SILENT): Move(S.HUNG, (A.EVICT,)),
        (S.FAULT, E.ABSENT): Move(S.GONE, (A.EVICT, A.KILL)),
        (S.FAULT, E.FAULT): Move(S.FAULT, (A.EVICT,)),  # whoever was let in meanwhile cannot work either
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
        (S.GONE, E.ANSWERS): Move(S.ACTIVE, (A.OPEN,)),  # another share's executor has made one
        (S.GONE, E.SILENT): Move(S.HUNG, (A.CLOSE,)),
        (S.GONE, E.ABSENT): Move(S.GONE),
        (S.GONE, E.FAULT): Move(S.FAULT, (A.CLOSE, A.EVICT)),
        (S.GONE, E.OVER): Move(S.ACTIVE, (A.OPEN,)),
        (S.GONE, E.EXITED): Move(S.GONE),
        (S.GONE, E.OVERDUE): Move(S.GONE),
    }
)


def step(state: State, event: Event) -> Move:
    """What follows; every pair is decided."""
    return TABLE[state, event]


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a daemon's log says.

    Attributes:
        fault: Whether a server is in fault at its end.
        met: Whether one was, at any time.
        culprits: Pids of the clients that it names for the last fault.
    """

    fault: bool = False
    met: bool = False
    culprits: tuple[int, ...] = ()


#: What begins a line, "[2026-11-22 06:58:01.100 Other 10977] ". Commands are logged, too, in the words of whoever gave
#: them, after "Cmd:"; so the words of a fault must come right after it.
_HEAD: Final = r"^\[[^\]]*\] "
#: Strings of libcuda.so of 535.261.03 and 550.163.01, which the server runs.
_CLIENT_FAULT: Final = re.compile(_HEAD + r"Client process (\d+) encountered a fatal GPU error\.")
_FAULT: Final = re.compile(
    _HEAD + r"(Server is handling a fatal GPU error\.|Server encountered a fatal exception)"
)
#: Strings of nvidia-cuda-mps-control of 535.261.03; the last two end what a server was in.
_NEW_SERVER: Final = re.compile(_HEAD + r"(NEW SERVER \d+: Ready|Server \d+ exited with status -?\d+)")


def read_log(text: str) -> LogReading:
    """Read what is left of faults at the end of a log.

    Args:
        text: Of the daemon and its servers, in the order in which it was written; its first line may be cut.
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
    """A line of the kernel's log: the card's address, the XID, and the pid of whose work met it."""

    pci_bus: str
    xid: int
    pid: int


def read_xid(line: str) -> XidLine | None:
    """Read a line of the kernel's log; None: it tells of no XID with a pid."""
    told = _XID.search(line)
    return None if told is None else XidLine(told[1].lower(), int(told[2]), int(told[3]))


def culprit(
    tasks: Collection[str], task_of: Mapping[int, str], xid_pids: Collection[int], log_pids: Collection[int]
) -> str | None:
    """The task whose fault it was; None: nobody can say, so it is nobody's.

    Args:
        tasks: On the card.
        task_of: The tasks of pids that were clients.
        xid_pids: That XIDs name; the server's own says nothing.
        log_pids: That the server's log names.
    """
    for pids in (xid_pids, log_pids):
        named = {task_of[pid] for pid in pids if pid in task_of} & set(tasks)
        if len(named) == 1:
            return next(iter(named))
    return next(iter(tasks)) if len(tasks) == 1 else None
