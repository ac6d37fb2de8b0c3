"""The life cycle of one launch: a Mesos task, from ACCEPT to its last status, as a table."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.nodes.gpu import Program
from mesos_gpu.model.shares.share import Share, larger_of
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.model.tasks.unknown import Unknown


class TaskState(Enum):
    """Where one launch stands. A task that we do not know is a state too."""

    ABSENT = "absent"  # Mesos speaks of it, our store does not know it
    LAUNCHED = "launched"  # saved and sent; no word of it yet
    STARTING = "starting"
    RUNNING = "running"
    KILLING = "killing"
    UNREACHABLE = "unreachable"  # its agent is cut off, or the master does not know it (yet)
    ABANDONED = "abandoned"  # unreachable for too long: its job went back to the queue, its GPUs stay held
    FINISHED = "finished"
    FAILED = "failed"  # by itself
    KILLED = "killed"  # because it was asked to
    LOST = "lost"  # by the infrastructure


LIVE: Final = (
    TaskState.LAUNCHED,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.KILLING,
    TaskState.UNREACHABLE,
)
ENDED: Final = (TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED, TaskState.LOST)


class Action(Enum):
    """What a transition asks for, in the order in which it is done."""

    SAVE = "save"
    FREE = "free"  # its GPUs may be given out again
    COMPLETE = "complete"  # the job has finished
    CANCEL = "cancel"  # the job was killed, as asked
    RETRY = "retry"  # an attempt is used up: queue the next, or the job has failed
    REQUEUE = "requeue"  # no attempt is used up
    KILL = "kill"  # it runs, and must not
    HOLD = "hold"  # it runs, and nobody here knows what it is


S, A = TaskState, Action
_STALE: Final[frozenset[Action]] = frozenset()  # legal and without effect: late, repeated or reordered
_NOTE: Final = frozenset({A.SAVE})
_PROGRESS: Final = (S.LAUNCHED, S.STARTING, S.RUNNING, S.KILLING)


def _table() -> dict[tuple[TaskState, TaskState], frozenset[Action]]:
    table: dict[tuple[TaskState, TaskState], frozenset[Action]] = {}
    for old in LIVE:
        table[old, S.FINISHED] = frozenset({A.SAVE, A.FREE, A.COMPLETE})
        table[old, S.FAILED] = frozenset({A.SAVE, A.FREE, A.RETRY})
        table[old, S.KILLED] = frozenset({A.SAVE, A.FREE, A.CANCEL})
        table[old, S.LOST] = frozenset({A.SAVE, A.FREE, A.REQUEUE})
        table[old, S.UNREACHABLE] = _NOTE
    for i, old in enumerate(_PROGRESS):
        for j, new in enumerate(_PROGRESS):
            table[old, new] = _NOTE if j > i else _STALE
    for new in _PROGRESS:
        table[S.UNREACHABLE, new] = _NOTE  # the agent is back, and it still runs
        table[S.ABANDONED, new] = frozenset({A.KILL})  # another copy may run by now
        table[S.ABSENT, new] = frozenset({A.HOLD})
        table[S.LOST, new] = frozenset({A.KILL})
    table[S.UNREACHABLE, S.ABANDONED] = frozenset({A.SAVE, A.REQUEUE})
    table[S.ABANDONED, S.UNREACHABLE] = _STALE
    for new in ENDED:
        table[S.ABANDONED, new] = frozenset({A.SAVE, A.FREE})
    for old in (*ENDED, S.ABSENT):
        for new in (*ENDED, S.UNREACHABLE):
            table[old, new] = _STALE
    for old in (S.FINISHED, S.FAILED, S.KILLED):
        for new in _PROGRESS:
            table[old, new] = _STALE  # a late update; it cannot run again
    return table


TABLE: Final = _table()


@cache
def actions_of(old: TaskState, new: TaskState) -> tuple[Action, ...] | None:
    """Actions of `old → new` in the order they are done; () if it is stale; None if it is illegal."""
    if old is new:
        return ()
    actions = TABLE.get((old, new))
    return None if actions is None else tuple(action for action in Action if action in actions)


@dataclass(frozen=True, slots=True)
class Task:
    """A launch, as the scheduler keeps it. Times are seconds since the epoch."""

    id: TaskId
    agent_id: AgentId
    executor_id: str
    job_id: JobId | None  # None: a node monitor
    state: TaskState
    launched_at: float
    attempt: int = 1
    gpus: tuple[GpuId, ...] = ()
    hostname: str = ""
    agent_url: str = ""  # where its sandbox can be read
    started_at: float | None = None
    ended_at: float | None = None
    heard_at: float = 0.0  # the latest word of it from Mesos; 0: none since (re)registration
    unreachable_since: float | None = None
    kill_sent_at: float | None = None
    message: str = ""
    evicted: str = ""  # why the scheduler ends it, though no user asked: its job is queued again
    launch: int = (
        0  # which launch of its job it belongs to, from 1; 0: the job has one task, or it is a monitor
    )
    rank: int = 0  # among the tasks of that launch
    ports: tuple[int, ...] = ()  # of its host, that it may listen on
    preempted_for: JobId | None = None  # the job that it makes room for
    notice: Notice | None = None  # the latest; None: it had none
    charge: Charge | None = (
        None  # what it counts as in its queue; None: nothing, or there is no tree of queues
    )
    told: tuple[GpuId, ...] = ()  # broken cards that its job's message has named
    healthy: bool | None = None  # the latest of its health checks; None: there are none, or not all were made
    sealed: bool = False  # whether its executor was told a secret, and is believed by it only
    proof: int = 0  # the number of the latest update that was believed
    unhealthy: str = ""  # why its health checks ended it, or will
    ready: bool = False  # its readiness check has passed
    unknown: Unknown | None = (
        None  # the state did not know it, and it waits for an operator's word; its job may not exist
    )
    share: Share | None = None  # what it holds of each of `gpus`; None: all of them
    resize: Resizing | None = None  # the latest of its share; None: it had none
    excess: str = ""  # how it is beyond its share, as its job was told; if it was ended then, why
    covers: GpuId | None = (
        None  # the shared card that it holds in Mesos for all its shares; None: it is no such task
    )
    #: The ExecutorInfo of such a task as JSON: Mesos wants that of all tasks of one executor to be the same. "": it is
    #: not known, and no other task joins that executor.
    keeper: str = ""
    made_by: str = ""  # of a node monitor: `Settings.monitor_made_by` at its launch; "": an earlier release's
    program: Program | None = None  # what its executor is; None: it has not said it, or its release does not
    listening: Listening | None = (
        None  # ports at which the task listens; None if its executor does not report them
    )

    @property
    def counted_share(self) -> Share | None:
        """What is counted as held of each of `gpus`: while its share is resized, the most that it may have."""
        if self.share is None or self.resize is None or not self.resize.pending:
            return self.share
        return larger_of(larger_of(self.share, self.resize.share), self.resize.before)

    @property
    def proved_ports(self) -> tuple[int | None, ...]:
        """Ports of the task, with None for each port at which it is not proved to listen: nothing may be sent there."""
        if self.listening is None:
            return self.ports
        return tuple(port if port in self.listening.ports else None for port in self.ports)

    @property
    def ended(self) -> bool:
        """Whether its GPUs are free again."""
        return self.state in ENDED
