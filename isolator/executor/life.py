"""State machine of the one task in its executor: the table of what each event leads to in each state. Pure.

`step` returns actions and waits for nothing; `isolator.executor.main` carries them out. Events of worker
threads, of the agent and of timers reach the table through one queue, so no two are ever handled at once.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from mesos_gpu.model.tasks.assignment import Outcome

UNHEALTHY: Final = "unhealthy: "  # prefix of the message of tasks that health checks ended


class State(Enum):
    """State of the task; it determines which threads are at work."""

    WAITING = "waiting"  # no task was launched yet
    PREPARING = "preparing"  # makes the claim and the enclosure
    FETCHING = "fetching"
    CANCELLING = "cancelling"  # killed before the start: the step at work comes to an end
    AT_BARRIER = "at_barrier"  # member of a gang, ready: it waits for the scheduler's signal to start
    STARTING = "starting"  # the image may have to be pulled
    ABORTING = "aborting"  # killed during the start
    RUNNING = "running"
    KILLING = "killing"  # SIGTERM was sent; SIGKILL follows after the grace period
    DYING = "dying"  # SIGKILL was sent; the end of the command is awaited
    # remaining processes are killed, what was made for the task is undone, the claim is released
    UNDOING = "undoing"
    REPORTED = "reported"  # the last update is sent, but not acknowledged
    LEAVING = "leaving"  # the connection to the agent is being closed
    DONE = "done"  # the process ends


class Kind(Enum):
    """Kind of an event."""

    LAUNCH = "launch"
    GO = "go"  # the scheduler's signal that all members of the gang are ready
    KILL = "kill"
    SHUTDOWN = "shutdown"  # from the agent, by SIGTERM, or because the agent is gone for good
    ACKNOWLEDGED = "acknowledged"  # the last update
    GONE = "gone"  # the connection to the agent has ended
    # the claim is in the ledger, with all traces; the steps before the start will take a while
    CLAIMED = "claimed"
    SET_UP = "set_up"  # the enclosure is set up, and files are to be fetched
    READY = "ready"  # the task can be started
    IN_PLACE = "in_place"  # the task can be started, as a member of a gang
    NOT_STARTED = "not_started"  # the command cannot run; the verdict says whose fault that is
    BROKEN = "broken"  # a step has failed, not by the job's fault
    STARTED = "started"
    CHECKS_READY = "checks_ready"  # the health checks can begin
    HEALTH = "health"  # another result of a health check, or one more failure that counts
    UNHEALTHY = "unhealthy"  # the health checks have failed too often
    RESIZE = "resize"  # the scheduler changes the share of the cards
    RESIZED = "resized"  # the result of a RESIZE
    NOTICE = "notice"  # the scheduler announces the task's end, or cancels that
    NOTICED = "noticed"  # the task can read the notice
    LISTENING = "listening"  # the set of ports at which the task is proved to listen has changed
    CHECKED = "checked"  # another result of the check that is only shown
    CHANNEL = "channel"  # the scheduler has a session for the task (exec, attach)
    CHECKPOINT = "checkpoint"  # the task reports that it has saved its work
    OVER_DISK = "over_disk"  # its sandbox or a volume exceeds its size
    ENDED = "ended"  # the command
    TERMINATED = "terminated"  # SIGKILL was sent to processes that outlived the grace period
    UNDONE = "undone"
    TIMED_OUT = "timed_out"  # the task has run for its timeout_s
    DEATH_OVERDUE = "death_overdue"  # the command survives SIGKILL, as one that waits in a driver does
    OVERDUE = "overdue"  # the agent is gone, and ending the task takes too long


class Action(Enum):
    """Action of the executor."""

    PREPARE = "prepare"
    FETCH = "fetch"
    START = "start"  # start the command, and wait for its end
    ABORT_FETCH = "abort_fetch"
    ABORT_START = "abort_start"
    CHECK = "check"  # start the checks
    DISMISS_CHECKS = "dismiss_checks"  # close checks that are no longer needed
    TERMINATE = "terminate"  # end the checks, then the command
    UNDO = "undo"
    SAY_STARTING = "say_starting"
    SAY_RUNNING = "say_running"
    SAY_HEALTH = "say_health"
    RESIZE = "resize"  # change the share of its cards
    SAY_RESIZED = "say_resized"
    NOTICE = "notice"  # write the notice for the task
    SAY_NOTICED = "say_noticed"
    SAY_LISTENING = "say_listening"
    SAY_CHECKED = "say_checked"
    OPEN_CHANNEL = "open_channel"  # run the session that waits at the scheduler
    SAY_CHECKPOINT = "say_checkpoint"
    SAY_KILLING = "say_killing"
    SAY_END = "say_end"
    REFUSE_TASK = "refuse_task"  # a second task is refused: an executor runs one
    LIMIT_TIME = "limit_time"  # TIMED_OUT follows after the task's timeout_s
    LIMIT_DYING = "limit_dying"  # DEATH_OVERDUE follows after a while
    LIMIT_STAY = "limit_stay"  # OVERDUE follows after the grace period and a while
    LEAVE = "leave"  # close the connection
    COMPLAIN = "complain"  # log the event as unexpected


class Verdict(NamedTuple):
    """Result of a task for its last update; `state` is one of Mesos' terminal states."""

    state: str
    message: str
    outcome: Outcome


class End(NamedTuple):
    """Reason to end a running task.

    Attributes:
        state: State to report.
        message: Message to report.
        grace_s: Seconds from SIGTERM to SIGKILL.
        unhealthy: Reason given by health checks, or "".
    """

    state: str
    message: str
    grace_s: float
    unhealthy: str = ""


class Terms(NamedTuple):
    """Time limits of a task's job, in seconds; `timeout_s` = None for a job without a limit."""

    kill_grace_s: float = 0.0
    timeout_s: float | None = None


class Event(NamedTuple):
    """Event of a task, with its details.

    Attributes:
        task_id: Task that an event of the agent is about; "" for the executor's own.
        message: Reason, for UNHEALTHY and OVER_DISK; output of failing checks, for HEALTH.
        grace_s: Seconds from SIGTERM to SIGKILL, for KILL and SHUTDOWN; None for the task's own.
        verdict: Result of the task, for ENDED, NOT_STARTED and BROKEN, and for UNDONE if the undo has failed.
        terms: Time limits, for READY and IN_PLACE.
        healthy: Result of health checks, for HEALTH.
        exit_code: Exit code of the process, for GONE.
        payload: Data for the action that the table does not read: the TaskInfo of LAUNCH, the checker of
            CHECKS_READY, messages of the scheduler or for it.
    """

    kind: Kind
    task_id: str = ""
    message: str = ""
    grace_s: float | None = None
    verdict: Verdict | None = None
    terms: Terms | None = None
    healthy: bool | None = None
    exit_code: int = 0
    payload: Any = None


class Life(NamedTuple):
    """State of the executor's task.

    Attributes:
        healthy: Last result of health checks, or None.
        end: First reason to end the task, or None.
        verdict: Result of the task; None while it has none.
        exit_code: Exit code of the process.
        kept: Deferred events for a later state, in their order, at most one of each kind.
    """

    state: State = State.WAITING
    task_id: str = ""
    terms: Terms = Terms()
    healthy: bool | None = None
    end: End | None = None
    verdict: Verdict | None = None
    exit_code: int = 0
    kept: tuple[Event, ...] = ()


class Effect(NamedTuple):
    """Action to carry out, with the event that caused it and the life after that event."""

    action: Action
    event: Event
    life: Life


class Move(NamedTuple):
    """Transition of the table.

    Attributes:
        to: Next state; it may be the same.
        does: Actions in their order.
        verdict: Function that gives the task's result, if the task ends by this transition.
        kept: Whether the event is deferred to the first later state that does not defer it.
    """

    to: State
    does: tuple[Action, ...] = ()
    verdict: Callable[[Life, Event], Verdict] | None = None
    kept: bool = False


class Ignored(NamedTuple):
    """Entry for an event that may occur in a state and changes nothing."""

    why: str


class Refused(NamedTuple):
    """Entry for an event that cannot occur in a state unless the executor has a bug; it is logged."""

    why: str


S, K, A = State, Kind, Action

NO_TASK: Final = Ignored("no task was launched")
NOT_AWAITED: Final = Ignored("the command does not wait for the scheduler's signal")
ENDS_ALREADY: Final = Ignored("only the first reason to end the task counts")
OVER: Final = Ignored("the event is about something that has ended")
NOT_RUNNING: Final = Ignored("the scheduler reports to the client that its session was not opened")
ASKED_AGAIN: Final = Ignored("the scheduler repeats the request until it is answered")
NOT_AT_WORK: Final = Refused("no step of this state reports this event")


def _own(life: Life, event: Event) -> Verdict:
    """Return the result that the event carries."""
    assert event.verdict is not None
    return event.verdict


def _killed(life: Life, event: Event) -> Verdict:
    """Return the result of a task that was killed before it had a process."""
    assert life.end is not None
    return Verdict(life.end.state, life.end.message, Outcome())


def _killed_in_words_of(life: Life, event: Event) -> Verdict:
    """Return the event's result with the state of the kill: the message says how the start failed."""
    assert life.end is not None
    return _own(life, event)._replace(state=life.end.state)


def _as_wanted(life: Life, event: Event) -> Verdict:
    """Return the result by the reason for the kill, with the command's exit status if that was seen."""
    assert life.end is not None
    how = event.verdict.outcome if event.kind is K.ENDED and event.verdict is not None else Outcome()
    outcome = Outcome(how.exit_status, how.signal, unhealthy=life.end.unhealthy)
    return Verdict(life.end.state, life.end.message, outcome)


_PREPARES: Final = (K.CLAIMED, K.SET_UP, K.READY, K.IN_PLACE)
_RUNS: Final = (
    K.CHECKS_READY,
    K.HEALTH,
    K.RESIZED,
    K.NOTICED,
    K.LISTENING,
    K.CHECKED,
    K.CHECKPOINT,
    K.UNHEALTHY,
    K.OVER_DISK,
    K.ENDED,
)
_LIMITS: Final = (K.TIMED_OUT, K.DEATH_OVERDUE)
_SECOND: Final = (A.REFUSE_TASK,)
_FAILS: Final = {kind: Move(S.UNDOING, (A.UNDO,), _own) for kind in (K.NOT_STARTED, K.BROKEN)}

_ROWS: Final[Mapping[State, tuple[Mapping[Kind, Move], Mapping[Ignored | Refused, tuple[Kind, ...]]]]] = {
    S.WAITING: (
        {
            K.LAUNCH: Move(S.PREPARING, (A.PREPARE,)),
            K.GO: Move(S.WAITING, kept=True),
            K.SHUTDOWN: Move(S.LEAVING, (A.LEAVE,)),
            K.GONE: Move(S.DONE),
        },
        {
            NO_TASK: (K.KILL, K.RESIZE, K.NOTICE, K.CHANNEL, K.ACKNOWLEDGED),
            NOT_AT_WORK: (*_PREPARES, K.NOT_STARTED, K.BROKEN, K.STARTED, *_RUNS, K.TERMINATED, K.UNDONE, *_LIMITS,
                          K.OVERDUE),
        },
    ),
    S.PREPARING: (
        {
            K.LAUNCH: Move(S.PREPARING, _SECOND),
            K.GO: Move(S.PREPARING, kept=True),
            K.KILL: Move(S.CANCELLING),
            K.SHUTDOWN: Move(S.CANCELLING),
            K.GONE: Move(S.CANCELLING, (A.LIMIT_STAY,), kept=True),
            K.CLAIMED: Move(S.PREPARING, (A.SAY_STARTING,)),
            K.SET_UP: Move(S.FETCHING, (A.FETCH,)),
            K.READY: Move(S.STARTING, (A.START,)),
            K.IN_PLACE: Move(S.AT_BARRIER, (A.SAY_STARTING,)),
            **_FAILS,
        },
        {
            ASKED_AGAIN: (K.RESIZE, K.NOTICE),
            NOT_RUNNING: (K.CHANNEL,),
            NOT_AT_WORK: (K.ACKNOWLEDGED, K.STARTED, *_RUNS, K.TERMINATED, K.UNDONE, *_LIMITS, K.OVERDUE),
        },
    ),
    S.FETCHING: (
        {
            K.LAUNCH: Move(S.FETCHING, _SECOND),
            K.GO: Move(S.FETCHING, kept=True),
            K.KILL: Move(S.CANCELLING, (A.ABORT_FETCH,)),
            K.SHUTDOWN: Move(S.CANCELLING, (A.ABORT_FETCH,)),
            K.GONE: Move(S.CANCELLING, (A.ABORT_FETCH, A.LIMIT_STAY), kept=True),
            K.READY: Move(S.STARTING, (A.START,)),
            K.IN_PLACE: Move(S.AT_BARRIER, (A.SAY_STARTING,)),
            **_FAILS,
        },
        {
            ASKED_AGAIN: (K.RESIZE, K.NOTICE),
            NOT_RUNNING: (K.CHANNEL,),
            NOT_AT_WORK: (K.ACKNOWLEDGED, K.CLAIMED, K.SET_UP, K.STARTED, *_RUNS, K.TERMINATED, K.UNDONE, *_LIMITS,
                          K.OVERDUE),
        },
    ),
    S.CANCELLING: (
        {
            K.LAUNCH: Move(S.CANCELLING, _SECOND),
            K.GONE: Move(S.CANCELLING, (A.LIMIT_STAY,), kept=True),
            K.CLAIMED: Move(S.CANCELLING, (A.SAY_STARTING,)),
            K.SET_UP: Move(S.UNDOING, (A.UNDO,), _killed),
            K.READY: Move(S.UNDOING, (A.UNDO,), _killed),
            K.IN_PLACE: Move(S.UNDOING, (A.SAY_STARTING, A.UNDO), _killed),
            K.NOT_STARTED: Move(S.UNDOING, (A.UNDO,), _killed_in_words_of),
            K.BROKEN: Move(S.UNDOING, (A.UNDO,), _own),
            K.OVERDUE: Move(S.DONE),
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.SHUTDOWN, K.RESIZE, K.NOTICE, K.CHANNEL),
            NOT_AT_WORK: (K.ACKNOWLEDGED, K.STARTED, *_RUNS, K.TERMINATED, K.UNDONE, *_LIMITS),
        },
    ),
    S.AT_BARRIER: (
        {
            K.LAUNCH: Move(S.AT_BARRIER, _SECOND),
            K.GO: Move(S.STARTING, (A.START,)),
            K.KILL: Move(S.UNDOING, (A.UNDO,), _killed),
            K.SHUTDOWN: Move(S.UNDOING, (A.UNDO,), _killed),
            K.GONE: Move(S.UNDOING, (A.UNDO, A.LIMIT_STAY), _killed, kept=True),
            K.BROKEN: Move(S.UNDOING, (A.UNDO,), _own),
        },
        {
            ASKED_AGAIN: (K.RESIZE, K.NOTICE),
            NOT_RUNNING: (K.CHANNEL,),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.NOT_STARTED, K.STARTED, *_RUNS, K.TERMINATED, K.UNDONE,
                          *_LIMITS, K.OVERDUE),
        },
    ),
    S.STARTING: (
        {
            K.LAUNCH: Move(S.STARTING, _SECOND),
            K.KILL: Move(S.ABORTING, (A.ABORT_START,)),
            K.SHUTDOWN: Move(S.ABORTING, (A.ABORT_START,)),
            K.GONE: Move(S.ABORTING, (A.ABORT_START, A.LIMIT_STAY), kept=True),
            K.STARTED: Move(S.RUNNING, (A.SAY_RUNNING, A.LIMIT_TIME)),
            K.OVER_DISK: Move(S.STARTING, kept=True),
            K.CHECKPOINT: Move(S.STARTING, kept=True),
            **_FAILS,
        },
        {
            NOT_AWAITED: (K.GO,),
            ASKED_AGAIN: (K.RESIZE, K.NOTICE),
            NOT_RUNNING: (K.CHANNEL,),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.CHECKS_READY, K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING,
                          K.CHECKED, K.UNHEALTHY, K.ENDED, K.TERMINATED, K.UNDONE, *_LIMITS, K.OVERDUE),
        },
    ),
    S.ABORTING: (
        {
            K.LAUNCH: Move(S.ABORTING, _SECOND),
            K.GONE: Move(S.ABORTING, (A.LIMIT_STAY,), kept=True),
            K.STARTED: Move(S.KILLING, (A.SAY_RUNNING, A.SAY_KILLING, A.TERMINATE)),
            K.NOT_STARTED: Move(S.UNDOING, (A.UNDO,), _killed_in_words_of),
            K.BROKEN: Move(S.UNDOING, (A.UNDO,), _own),
            K.OVERDUE: Move(S.DONE),
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.SHUTDOWN, K.RESIZE, K.NOTICE, K.CHANNEL, K.OVER_DISK, K.CHECKPOINT),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.CHECKS_READY, K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING,
                          K.CHECKED, K.UNHEALTHY, K.ENDED, K.TERMINATED, K.UNDONE, *_LIMITS),
        },
    ),
    S.RUNNING: (
        {
            K.LAUNCH: Move(S.RUNNING, _SECOND),
            K.KILL: Move(S.KILLING, (A.SAY_KILLING, A.TERMINATE)),
            K.SHUTDOWN: Move(S.KILLING, (A.SAY_KILLING, A.TERMINATE)),
            K.GONE: Move(S.KILLING, (A.SAY_KILLING, A.TERMINATE, A.LIMIT_STAY), kept=True),
            K.CHECKS_READY: Move(S.RUNNING, (A.CHECK,)),
            K.HEALTH: Move(S.RUNNING, (A.SAY_HEALTH,)),
            K.RESIZE: Move(S.RUNNING, (A.RESIZE,)),
            K.RESIZED: Move(S.RUNNING, (A.SAY_RESIZED,)),
            K.NOTICE: Move(S.RUNNING, (A.NOTICE,)),
            K.NOTICED: Move(S.RUNNING, (A.SAY_NOTICED,)),
            K.LISTENING: Move(S.RUNNING, (A.SAY_LISTENING,)),
            K.CHECKED: Move(S.RUNNING, (A.SAY_CHECKED,)),
            K.CHANNEL: Move(S.RUNNING, (A.OPEN_CHANNEL,)),
            K.CHECKPOINT: Move(S.RUNNING, (A.SAY_CHECKPOINT,)),
            K.UNHEALTHY: Move(S.KILLING, (A.SAY_KILLING, A.TERMINATE)),
            K.OVER_DISK: Move(S.KILLING, (A.TERMINATE,)),
            K.TIMED_OUT: Move(S.KILLING, (A.TERMINATE,)),
            K.ENDED: Move(S.UNDOING, (A.UNDO,), _own),
            **_FAILS,
        },
        {
            NOT_AWAITED: (K.GO,),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.STARTED, K.TERMINATED, K.UNDONE, K.DEATH_OVERDUE, K.OVERDUE),
        },
    ),
    S.KILLING: (
        {
            K.LAUNCH: Move(S.KILLING, _SECOND),
            K.GONE: Move(S.KILLING, (A.LIMIT_STAY,), kept=True),
            K.CHECKS_READY: Move(S.KILLING, (A.DISMISS_CHECKS,)),
            K.CHECKPOINT: Move(S.KILLING, (A.SAY_CHECKPOINT,)),
            K.ENDED: Move(S.KILLING, kept=True),  # its children may use the rest of the grace period
            K.TERMINATED: Move(S.DYING, (A.LIMIT_DYING,)),
            K.OVERDUE: Move(S.DONE),
            **_FAILS,
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.SHUTDOWN, K.RESIZE, K.NOTICE, K.CHANNEL, K.UNHEALTHY, K.OVER_DISK, K.TIMED_OUT),
            OVER: (K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING, K.CHECKED),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.STARTED, K.UNDONE, K.DEATH_OVERDUE),
        },
    ),
    S.DYING: (
        {
            K.LAUNCH: Move(S.DYING, _SECOND),
            K.GONE: Move(S.DYING, (A.LIMIT_STAY,), kept=True),
            K.CHECKS_READY: Move(S.DYING, (A.DISMISS_CHECKS,)),
            K.CHECKPOINT: Move(S.DYING, (A.SAY_CHECKPOINT,)),
            K.ENDED: Move(S.UNDOING, (A.UNDO,), _as_wanted),
            K.DEATH_OVERDUE: Move(S.UNDOING, (A.UNDO,), _as_wanted),
            K.BROKEN: Move(S.UNDOING, (A.UNDO,), _as_wanted),
            K.OVERDUE: Move(S.DONE),
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.SHUTDOWN, K.RESIZE, K.NOTICE, K.CHANNEL, K.UNHEALTHY, K.OVER_DISK, K.TIMED_OUT),
            OVER: (K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING, K.CHECKED),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.NOT_STARTED, K.STARTED, K.TERMINATED, K.UNDONE),
        },
    ),
    S.UNDOING: (
        {
            K.LAUNCH: Move(S.UNDOING, _SECOND),
            K.GONE: Move(S.UNDOING, (A.LIMIT_STAY,), kept=True),
            K.CHECKS_READY: Move(S.UNDOING, (A.DISMISS_CHECKS,)),
            K.UNDONE: Move(S.REPORTED, (A.SAY_END,)),
            K.OVERDUE: Move(S.DONE),
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.SHUTDOWN, K.RESIZE, K.NOTICE, K.CHANNEL, K.UNHEALTHY, K.OVER_DISK, K.TIMED_OUT),
            OVER: (K.NOT_STARTED, K.BROKEN, K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING, K.CHECKED, K.CHECKPOINT,
                   K.ENDED, K.TERMINATED, K.DEATH_OVERDUE),
            NOT_AT_WORK: (K.ACKNOWLEDGED, *_PREPARES, K.STARTED),
        },
    ),
    S.REPORTED: (
        {
            K.LAUNCH: Move(S.REPORTED, _SECOND),
            K.SHUTDOWN: Move(S.LEAVING, (A.LEAVE,)),
            K.ACKNOWLEDGED: Move(S.LEAVING, (A.LEAVE,)),
            K.GONE: Move(S.DONE),
            K.CHECKS_READY: Move(S.REPORTED, (A.DISMISS_CHECKS,)),
        },
        {
            NOT_AWAITED: (K.GO,),
            ENDS_ALREADY: (K.KILL, K.RESIZE, K.NOTICE, K.CHANNEL, K.UNHEALTHY, K.OVER_DISK, K.TIMED_OUT),
            OVER: (K.NOT_STARTED, K.BROKEN, K.HEALTH, K.RESIZED, K.NOTICED, K.LISTENING, K.CHECKED, K.CHECKPOINT,
                   K.ENDED, K.TERMINATED, K.DEATH_OVERDUE),
            NOT_AT_WORK: (*_PREPARES, K.STARTED, K.UNDONE, K.OVERDUE),
        },
    ),
    S.LEAVING: ({K.GONE: Move(S.DONE)}, {OVER: tuple(kind for kind in K if kind is not K.GONE)}),
    S.DONE: ({}, {OVER: tuple(K)}),
}  # fmt: skip


def _table() -> dict[tuple[State, Kind], Move | Ignored | Refused]:
    table: dict[tuple[State, Kind], Move | Ignored | Refused] = {}
    for state, (moves, others) in _ROWS.items():
        for kind, move in moves.items():
            table[state, kind] = move
        for what, kinds in others.items():
            for kind in kinds:
                table[state, kind] = what
    return table


TABLE: Final = _table()
assert len(TABLE) == len(State) * len(Kind), "each pair is in the table"


def step(life: Life, event: Event) -> tuple[Life, tuple[Effect, ...]]:
    """Return the life after one event, and the actions in their order; events of another task change nothing."""
    if event.task_id not in ("", life.task_id) and event.kind is not K.LAUNCH:
        return life, ()
    life, effects = _after(life, event)
    while (ripe := _ripe(life)) is not None:
        kept = tuple(deferred for deferred in life.kept if deferred is not ripe)
        life, more = _after(life._replace(kept=kept), ripe)
        effects += more
    return life, effects


def _ripe(life: Life) -> Event | None:
    """Return the first deferred event that the current state does not defer, or None."""
    for event in life.kept:
        pair = TABLE[life.state, event.kind]
        if not (isinstance(pair, Move) and pair.kept):
            return event
    return None


def _after(life: Life, event: Event) -> tuple[Life, tuple[Effect, ...]]:
    """Return the life and the actions after one event, deferred events aside."""
    pair = TABLE[life.state, event.kind]
    if isinstance(pair, Ignored):
        return life, ()
    if isinstance(pair, Refused):
        return life, (Effect(A.COMPLAIN, event, life),)
    life = _with_details(life, event, moves=pair.to is not life.state)
    if pair.verdict is not None:
        life = life._replace(verdict=pair.verdict(life, event))
    if pair.kept and not any(deferred.kind is event.kind for deferred in life.kept):
        life = life._replace(kept=(*life.kept, event))
    life = life._replace(state=pair.to)
    return life, tuple(Effect(action, event, life) for action in pair.does)


def _with_details(life: Life, event: Event, *, moves: bool) -> Life:
    """Return the life with the details of an event; `moves`: whether the event changes the state, so that its
    kill counts.
    """
    kind = event.kind
    if kind is K.LAUNCH:
        return life._replace(task_id=event.task_id) if moves else life
    if kind is K.HEALTH:
        return life._replace(healthy=event.healthy)
    if kind is K.GONE:
        life = life._replace(exit_code=event.exit_code)
    if kind is K.UNDONE and event.verdict is not None:
        life = life._replace(verdict=event.verdict)
    if event.terms is not None:
        life = life._replace(terms=event.terms)
    if moves and life.end is None:
        life = life._replace(end=_end_of(life, event))
    return life


def _end_of(life: Life, event: Event) -> End | None:
    """Return the reason to end the task that an event gives, or None."""
    grace_s = life.terms.kill_grace_s if event.grace_s is None else event.grace_s
    kind, why = event.kind, event.message
    if kind is K.KILL:
        return End("TASK_KILLED", "killed on request", grace_s)
    if kind is K.SHUTDOWN:
        return End("TASK_KILLED", "the agent shut the executor down", grace_s)
    if kind is K.GONE:
        return End("TASK_KILLED", "the executor ended", 0.0)
    if kind is K.UNHEALTHY:
        return End("TASK_KILLED", f"{UNHEALTHY}{why}", grace_s, unhealthy=why)
    if kind is K.OVER_DISK:
        return End("TASK_FAILED", why, grace_s)
    if kind is K.TIMED_OUT:
        return End("TASK_FAILED", f"Ran longer than its timeout_s of {life.terms.timeout_s:g}", grace_s)
    return None


def arrows() -> Iterator[tuple[State, tuple[Kind, ...], State]]:
    """Yield each pair of different states with all kinds of events that lead from one to the other."""
    ways: dict[tuple[State, State], list[Kind]] = {}
    for (state, kind), pair in TABLE.items():
        if isinstance(pair, Move) and pair.to is not state:
            ways.setdefault((state, pair.to), []).append(kind)
    for (state, to), kinds in ways.items():
        yield state, tuple(kinds), to


def mermaid() -> str:
    """Return the table as a state diagram of Mermaid, without events that change no state."""
    lines = [
        f"    {a.value} --> {b.value}: {', '.join(kind.value for kind in kinds)}" for a, kinds, b in arrows()
    ]
    first, last = f"    [*] --> {State.WAITING.value}", f"    {State.DONE.value} --> [*]"
    return "\n".join(["stateDiagram-v2", first, *lines, last])
