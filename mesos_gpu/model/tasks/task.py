"""State table of one launch: a Mesos task, from ACCEPT to its last status update."""

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
    """State of one launch, including tasks that the scheduler does not know."""

    ABSENT = "absent"  # known to Mesos, but not to the scheduler's store
    LAUNCHED = "launched"  # saved and sent to Mesos; no status update yet
    STARTING = "starting"
    RUNNING = "running"
    KILLING = "killing"
    UNREACHABLE = "unreachable"  # its agent is unreachable, or the master does not know it (yet)
    ABANDONED = "abandoned"  # unreachable for too long: its job is requeued, its GPUs stay held
    FINISHED = "finished"
    FAILED = "failed"  # by its own fault
    KILLED = "killed"  # on request
    LOST = "lost"  # ended by the infrastructure


LIVE: Final = (
    TaskState.LAUNCHED,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.KILLING,
    TaskState.UNREACHABLE,
)
ENDED: Final = (TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED, TaskState.LOST)


class Action(Enum):
    """Operation that a transition requires; listed in the order of execution."""

    SAVE = "save"
    FREE = "free"  # its GPUs may be assigned again
    COMPLETE = "complete"  # the job has finished
    CANCEL = "cancel"  # the job was killed on request
    RETRY = "retry"  # an attempt is used up: requeue the job, or mark it as failed
    REQUEUE = "requeue"  # no attempt is used up
    KILL = "kill"  # it runs, but must not
    HOLD = "hold"  # it runs, but the scheduler does not know it


S, A = TaskState, Action
_STALE: Final[frozenset[Action]] = frozenset()  # legal without effect: late, repeated or reordered
_NOTE: Final = frozenset({A.SAVE})
_PROGRESS: Final = (S.LAUNCHED, S.STARTING, S.RUNNING, S.KILLING)


def _table() -> dict[tuple[TaskState, TaskState], frozenset[Action]]:
    """Return the operations of each legal transition; other transitions are illegal."""
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
        table[S.UNREACHABLE, new] = _NOTE  # the agent is back, and the task still runs
        table[S.ABANDONED, new] = frozenset({A.KILL})  # another copy of the task may run by now
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
            table[old, new] = _STALE  # a late update, as the task cannot run again
    return table


TABLE: Final = _table()


@cache
def actions_of(old: TaskState, new: TaskState) -> tuple[Action, ...] | None:
    """Return the operations of a transition in order; () if the update is stale, None if the transition is illegal."""
    if old is new:
        return ()
    actions = TABLE.get((old, new))
    return None if actions is None else tuple(action for action in Action if action in actions)


@dataclass(frozen=True, slots=True)
class Task:
    """A launch in the scheduler's state. Times are seconds since the epoch."""

    id: TaskId
    agent_id: AgentId
    executor_id: str
    job_id: JobId | None  # None for a node monitor
    state: TaskState
    launched_at: float
    attempt: int = 1
    gpus: tuple[GpuId, ...] = ()
    hostname: str = ""
    agent_url: str = ""  # URL of the agent, which serves the sandbox
    started_at: float | None = None
    ended_at: float | None = None
    heard_at: float = 0.0  # time of the latest status update; 0 if none since (re)registration
    unreachable_since: float | None = None
    kill_sent_at: float | None = None
    message: str = ""
    evicted: str = ""  # reason why the scheduler ends it without a user's request; its job is requeued
    launch: int = 0  # number of the job's launch, from 1; 0 for a job of one task or a monitor
    rank: int = 0  # rank among the tasks of the launch
    ports: tuple[int, ...] = ()  # ports of its host that it may listen on
    preempted_for: JobId | None = None  # id of the job for which it is preempted
    notice: Notice | None = None  # latest notice; None without one
    charge: Charge | None = None  # amounts charged to its queue; None if nothing is charged
    told: tuple[GpuId, ...] = ()  # broken GPUs that its job's message already names
    healthy: bool | None = None  # overall result of its health checks; None unless all have a result
    sealed: bool = False  # whether its executor has a key, and only updates with its seal are accepted
    proof: int = 0  # number of the latest accepted update
    unhealthy: str = ""  # reason why its health checks end it
    ready: bool = False  # whether its readiness check has passed
    # Set if the state did not know the task, which waits for an operator's decision.
    unknown: Unknown | None = None
    share: Share | None = None  # its share of each of `gpus`; None for whole GPUs
    resize: Resizing | None = None  # latest resize of its share; None without one
    # Text of the job's message that it exceeds its share; if it was ended for that, the reason.
    excess: str = ""
    covers: GpuId | None = None  # shared GPU that it holds in Mesos as a cover task; None for other tasks
    #: ExecutorInfo of a cover task as JSON, as Mesos requires equal ones of all tasks of an executor. "" if not known:
    #: no other task joins that executor then.
    keeper: str = ""
    # For a monitor: `Settings.monitor_made_by` at its launch; "" if launched by an earlier release.
    made_by: str = ""
    program: Program | None = None  # release of its executor; None if not reported
    # Ports at which the task listens; None if its executor does not report them.
    listening: Listening | None = None

    @property
    def counted_share(self) -> Share | None:
        """Share that counts as held of each of `gpus`: while a resize is pending, the largest amounts that it may
        have."""
        if self.share is None or self.resize is None or not self.resize.pending:
            return self.share
        return larger_of(larger_of(self.share, self.resize.share), self.resize.before)

    @property
    def proved_ports(self) -> tuple[int | None, ...]:
        """Ports of the task, with None for each port at which it is not proved to listen, so that nothing is sent
        there."""
        if self.listening is None:
            return self.ports
        return tuple(port if port in self.listening.ports else None for port in self.ports)

    @property
    def ended(self) -> bool:
        """Whether the task has ended, so that its GPUs are free."""
        return self.state in ENDED
