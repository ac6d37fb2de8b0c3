"""The life of the one task in its executor, as a table: what each event leads to in each state. Pure.

`step` says what is to be done and waits for nothing; `isolator.executor.main` carries it out. An event of a thread
that is at work, of the agent or of a timer reaches the table through one queue, so no two are ever handled at once.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from mesos_gpu.model.tasks.assignment import Outcome

UNHEALTHY: Final = "unhealthy: "  # how a message begins that says why health checks ended a task


class State(Enum):
    """Where the task stands. Which threads are at work follows from it."""

    WAITING = "waiting"  # for the launch
    PREPARING = "preparing"  # its claim, its enclosure
    FETCHING = "fetching"
    CANCELLING = "cancelling"  # the end is wanted before the start: what is at work comes to an end
    AT_BARRIER = "at_barrier"  # a gang's member, ready: it waits for the scheduler's word
    STARTING = "starting"  # an image may be pulled meanwhile
    ABORTING = "aborting"  # the end is wanted while it is started
    RUNNING = "running"
    KILLING = "killing"  # SIGTERM, the grace, SIGKILL
    DYING = "dying"  # SIGKILL is sent, the end of the command is not seen yet
    UNDOING = "undoing"  # what is left of it is ended, what was made for it removed, the claim released
    REPORTED = "reported"  # the last update is sent, and not acknowledged
    LEAVING = "leaving"  # the connection to the agent is being closed
    DONE = "done"  # the process ends


class Kind(Enum):
    """Kinds of events."""

    LAUNCH = "launch"
    GO = "go"  # the scheduler's word that all members of the gang are in their places
    KILL = "kill"
    SHUTDOWN = "shutdown"  # by the agent, by SIGTERM, or because the agent is gone for good
    ACKNOWLEDGED = "acknowledged"  # the last update
    GONE = "gone"  # the connection to the agent has ended
    CLAIMED = "claimed"  # the ledger has its GPUs and all that will be made; what comes before its start takes a while
    SET_UP = "set_up"  # its enclosure stands; files are to be fetched
    READY = "ready"  # to be started
    IN_PLACE = "in_place"  # ready, as a gang's member
    NOT_STARTED = "not_started"  # the command cannot run, and the verdict says whose fault that is
    BROKEN = "broken"  # what was at work has failed, and not by the job's fault
    STARTED = "started"
    CHECKS_READY = "checks_ready"  # its health checks can begin
    HEALTH = "health"  # another answer of a health check, or one more failure that counts
    UNHEALTHY = "unhealthy"  # its health checks have failed too often
    RESIZE = "resize"  # the scheduler wants it to have more or less of its cards
    RESIZED = "resized"  # what came of that
    NOTICE = "notice"  # the scheduler says that it is to end, or that it goes on
    NOTICED = "noticed"  # the task can read that
    LISTENING = "listening"  # the set of ports at which the task is proved to listen has changed
    CHECKED = "checked"  # another result of the check that is only shown
    CHANNEL = "channel"  # the scheduler calls for a command in the task
    CHECKPOINT = "checkpoint"  # the task says that it has kept its work
    OVER_DISK = "over_disk"  # its sandbox holds more than was asked for
    ENDED = "ended"  # the command
    TERMINATED = "terminated"  # SIGKILL is sent to what outlived the grace
    UNDONE = "undone"
    TIMED_OUT = "timed_out"  # it has run for its timeout_s
    DEATH_OVERDUE = "death_overdue"  # the command outlives SIGKILL, as one that waits in a driver does
    OVERDUE = "overdue"  # the agent is gone, and the task's end takes too long


class Action(Enum):
    """What an executor is asked to do."""

    PREPARE = "prepare"
    FETCH = "fetch"
    START = "start"  # and wait for its end
    ABORT_FETCH = "abort_fetch"
    ABORT_START = "abort_start"
    CHECK = "check"  # begin with health checks
    DISMISS_CHECKS = "dismiss_checks"  # they do not begin
    TERMINATE = "terminate"  # end health checks, then the command
    UNDO = "undo"
    SAY_STARTING = "say_starting"
    SAY_RUNNING = "say_running"
    SAY_HEALTH = "say_health"
    RESIZE = "resize"  # its share of its cards
    SAY_RESIZED = "say_resized"
    NOTICE = "notice"  # have the task read it
    SAY_NOTICED = "say_noticed"
    SAY_LISTENING = "say_listening"
    SAY_CHECKED = "say_checked"
    OPEN_CHANNEL = "open_channel"  # go to where the command waits
    SAY_CHECKPOINT = "say_checkpoint"
    SAY_KILLING = "say_killing"
    SAY_END = "say_end"
    REFUSE_TASK = "refuse_task"  # another one than the executor's
    LIMIT_TIME = "limit_time"  # TIMED_OUT after the task's timeout_s
    LIMIT_DYING = "limit_dying"  # DEATH_OVERDUE after a while
    LIMIT_STAY = "limit_stay"  # OVERDUE after the grace and a while
    LEAVE = "leave"  # close the connection
    COMPLAIN = "complain"  # the event should not have come: a line in the log


class Verdict(NamedTuple):
    """How a task ended, for its last update; `state` is one of Mesos' terminal ones."""

    state: str
    message: str
    outcome: Outcome


class End(NamedTuple):
    """A wish for the end of a task that runs: the state and message to report, and seconds from SIGTERM to SIGKILL.

    `unhealthy`: why its health checks ended it; "": they did not.
    """

    state: str
    message: str
    grace_s: float
    unhealthy: str = ""


class Terms(NamedTuple):
    """What a task asked for that the table needs. In seconds; `timeout_s` None: it may run for ever."""

    kill_grace_s: float = 0.0
    timeout_s: float | None = None


class Event(NamedTuple):
    """Something that happened, with what is known of it.

    Attributes:
        task_id: Which task an event of the agent speaks of; "": the executor's own.
        message: Why, of UNHEALTHY and OVER_DISK; of HEALTH what failing checks say.
        grace_s: From SIGTERM to SIGKILL, of KILL and SHUTDOWN; None: the task's own.
        verdict: Of ENDED, NOT_STARTED and BROKEN; of UNDONE, if undoing has failed.
        terms: Of READY and IN_PLACE.
        healthy: Of HEALTH.
        exit_code: Of the process, of GONE.
        payload: What an action needs and the table does not: the TaskInfo of LAUNCH, the checker of CHECKS_READY, what
            a scheduler or its executor says.
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
    """All that an executor remembers of its task.

    Attributes:
        healthy: What health checks said last; None: nothing, or nothing yet.
        end: The first wish for the end; None: nobody wants it.
        verdict: How it ended; None: it has not.
        exit_code: Of the process.
        kept: Events for a state that is to come, in their order, one of a kind.
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
    """Something to do, in the order of effects: the action, the event that led to it, and the life after that."""

    action: Action
    event: Event
    life: Life


class Move(NamedTuple):
    """A pair of the table that something follows from.

    Attributes:
        to: The next state; it may be the same.
        does: Actions, in their order.
        verdict: How the task's last update is found, if it ends here.
        kept: Whether the event is handed once more to the first later state that does not keep it.
    """

    to: State
    does: tuple[Action, ...] = ()
    verdict: Callable[[Life, Event], Verdict] | None = None
    kept: bool = False


class Ignored(NamedTuple):
    """A pair that may occur and that nothing follows from."""

    why: str


class Refused(NamedTuple):
    """A pair that cannot occur unless the executor is wrong: nothing but a line in its log follows."""

    why: str


S, K, A = State, Kind, Action

NO_TASK: Final = Ignored("no task was launched")
NOT_AWAITED: Final = Ignored("the command does not wait for the scheduler's word")
ENDS_ALREADY: Final = Ignored("the first wish for the end is the one that counts")
OVER: Final = Ignored("what it speaks of is over")
NOT_RUNNING: Final = Ignored("who waits at a channel is told that nobody came")
ASKED_AGAIN: Final = Ignored("the scheduler asks again until it is answered")
NOT_AT_WORK: Final = Refused("nothing that is at work in this state reports it")


def _own(life: Life, event: Event) -> Verdict:
    """The event says how the task ended."""
    assert event.verdict is not None
    return event.verdict


def _killed(life: Life, event: Event) -> Verdict:
    """The end was wanted before there was anything to kill."""
    assert life.end is not None
    return Verdict(life.end.state, life.end.message, Outcome())


def _killed_in_words_of(life: Life, event: Event) -> Verdict:
    """Give the words of an end that the task could not start to come to: they say how."""
    assert life.end is not None
    return _own(life, event)._replace(state=life.end.state)


def _as_wanted(life: Life, event: Event) -> Verdict:
    """The end that was wanted, and how the command took it, if that was seen."""
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
            K.ENDED: Move(S.KILLING, kept=True),  # its children have the rest of the grace
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
    """The life after one event, and what is to be done, in that order. Events of another task change nothing."""
    if event.task_id not in ("", life.task_id) and event.kind is not K.LAUNCH:
        return life, ()
    life, effects = _after(life, event)
    while (ripe := _ripe(life)) is not None:
        kept = tuple(each for each in life.kept if each is not ripe)
        life, more = _after(life._replace(kept=kept), ripe)
        effects += more
    return life, effects


def _ripe(life: Life) -> Event | None:
    """The first of the kept events that the state does not keep."""
    for event in life.kept:
        pair = TABLE[life.state, event.kind]
        if not (isinstance(pair, Move) and pair.kept):
            return event
    return None


def _after(life: Life, event: Event) -> tuple[Life, tuple[Effect, ...]]:
    pair = TABLE[life.state, event.kind]
    if isinstance(pair, Ignored):
        return life, ()
    if isinstance(pair, Refused):
        return life, (Effect(A.COMPLAIN, event, life),)
    life = _told(life, event, moves=pair.to is not life.state)
    if pair.verdict is not None:
        life = life._replace(verdict=pair.verdict(life, event))
    if pair.kept and not any(each.kind is event.kind for each in life.kept):
        life = life._replace(kept=(*life.kept, event))
    life = life._replace(state=pair.to)
    return life, tuple(Effect(action, event, life) for action in pair.does)


def _told(life: Life, event: Event, *, moves: bool) -> Life:
    """The life with what an event says. A wish for the end counts where it `moves` the task to another state."""
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
    """The end that an event wants; None: it wants none."""
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
    """Each pair of different states with all kinds of events that lead from the one to the other, in their order."""
    ways: dict[tuple[State, State], list[Kind]] = {}
    for (state, kind), pair in TABLE.items():
        if isinstance(pair, Move) and pair.to is not state:
            ways.setdefault((state, pair.to), []).append(kind)
    for (state, to), kinds in ways.items():
        yield state, tuple(kinds), to


def mermaid() -> str:
    """The table as a state diagram of Mermaid, without what changes no state."""
    lines = [
        f"    {a.value} --> {b.value}: {', '.join(kind.value for kind in kinds)}" for a, kinds, b in arrows()
    ]
    first, last = f"    [*] --> {State.WAITING.value}", f"    {State.DONE.value} --> [*]"
    return "\n".join(["stateDiagram-v2", first, *lines, last])
