"""Acts that time alone asks for: each is done when its time has come, and not before."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.access import tokens
from mesos_gpu.engine.gpus import cards, covers, role
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.parts.quota import QuotaPart
from mesos_gpu.engine.parts.rights import RightsPart
from mesos_gpu.engine.parts.work import WorkPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks import evictions, gangs, replaced, resizing
from mesos_gpu.engine.turn import Turn
from mesos_gpu.engine.upkeep import on_tick
from mesos_gpu.model import saves
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Card, Drain, Reset, Target
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tasks.unknown import Listed, Unknown
from tests.doubles.builders import every, gpu, spec

T0 = 100_000.0
A1, G0 = AgentId("a1"), GpuId("g0")
SHARE = Share(500, 1000, 1000, Method.TURNS)
SETTINGS = Settings.of("executor", "monitor")


@dataclass(frozen=True)
class Due:
    """Something that is due `after_s` from `T0`: the effect that it has, of a state, when that is called."""

    name: str
    kind: type[object]
    after_s: float
    state: Callable[[], State]
    call: Callable[[Turn], None] = on_tick
    is_strict: bool = False  # it is due only when that time is over


def task(name: str = "j.1", state: TaskState = TaskState.RUNNING, **fields: object) -> Task:
    known = Task(TaskId(name), A1, name, None, state, T0, heard_at=T0, hostname="h1")
    return replace(known, **fields)  # type: ignore[arg-type]


def state_of(*nouns: object, **fields: object) -> State:
    """A state that was tended at T0 and waits for nothing else."""
    state = State(
        T0,
        mesos=MesosPart(connected=True, reconciled_at=T0),
        work=WorkPart(tended_at=T0),
        rights=RightsPart(tokens_swept_at=T0),
        quota=QuotaPart(past_uses_swept_at=T0),
    )
    state.mesos.role_asked_at = state.apps.looked_at_apps = state.cluster.rolls.looked_at = T0
    for noun in nouns:
        state.put(noun)
    for name, value in fields.items():
        setattr(state.part_with(name), name, value)
    return state


def job(**fields: object) -> Job:
    known = Job(JobId("j"), spec(), T0, 1, JobState.RUNNING, task_id=TaskId("j.1"))
    return replace(known, **fields)  # type: ignore[arg-type]


def of_job(**fields: object) -> Task:
    return task(**{"job_id": JobId("j"), **fields})  # type: ignore[arg-type]


def resetting() -> State:
    card = Card(G0, reset=Reset("r", "why", "", T0, T0))
    node = Node(A1, "h1", monitor=TaskId("m"), inventory=Inventory((gpu("g0"),)), reported_at=T0)
    return state_of(card, node, task("m"))


def gang() -> State:
    member = of_job(state=TaskState.STARTING, launch=1)
    other = replace(member, id=TaskId("j.2"), rank=1)
    told = {TaskId("j.1"): T0, TaskId("j.2"): T0}
    return state_of(
        job(spec=spec(tasks=2), launches=1, state=JobState.STARTING), member, other, released=told
    )


def successor() -> State:
    cover = task("c", TaskState.UNREACHABLE, covers=G0, unreachable_since=T0, gpus=())
    other = Node(AgentId("a2"), "h1", reported_at=T0 + 1, inventory=Inventory((gpu("g0"),)))
    return state_of(cover, other, Node(A1, "h1"))


DUE = [
    Due("a reset is asked for again", fx.AskReset, SETTINGS.tasks.reset_resend_s, resetting, cards.on_tick),
    Due("a silent reset is given up", saves.SaveCard, SETTINGS.tasks.reset_timeout_s,
        lambda: asked(resetting()), cards.on_tick),
    Due("an idle cover is ended", fx.Kill, SETTINGS.placing.cover_linger_s,
        lambda: state_of(task("c", covers=G0), idle={G0: T0}), covers.on_tick),
    Due("the end of a cover is repeated", fx.Kill, SETTINGS.tasks.kill_resend_s,
        lambda: state_of(task("c", covers=G0, kill_sent_at=T0)), covers.on_tick),
    Due("an idle cover that is cut off is given up", saves.ForgetTask, SETTINGS.mesos.unreachable_timeout_s,
        lambda: state_of(task("c", TaskState.UNREACHABLE, covers=G0, unreachable_since=T0), idle={G0: T0 + 100}),
        covers.on_tick),
    Due("the word to start is repeated", fx.Start, SETTINGS.tasks.start_resend_s, gang, gangs.on_tick),
    Due("a role is read again", fx.ReadRole, role.ASK_AGAIN_S,
        lambda: state_of(job(state=JobState.PENDING)), role.on_tick),
    Due("a cover is lost with its agent", saves.SaveTask, SETTINGS.mesos.unreachable_timeout_s, successor,
        replaced.on_tick),
    Due("a drain's deadline passes", saves.SaveTask, 60.0,
        lambda: state_of(job(), of_job(), Drain(Target.NODE, "h1", "", "", T0, T0 + 60)), evictions.on_tick),
    Due("a resize is asked for again", fx.AskResize, SETTINGS.tasks.resize_resend_s,
        lambda: state_of(task(gpus=(G0,), share=SHARE, resize=Resizing(1, SHARE, SHARE, T0, sent_at=T0))),
        resizing.on_tick),
    Due("old tokens are forgotten once an hour", saves.ForgetToken, tokens.SWEEP_S,
        lambda: state_of(Token("t", "ann", "", "", 0.0, -1e9), tokens_swept_at=T0), tokens.on_tick),
    Due("an expired token is forgotten", saves.ForgetToken, tokens.KEEP_EXPIRED_S,
        lambda: state_of(Token("t", "ann", "", "", 0.0, T0), tokens_swept_at=0.0), tokens.on_tick, is_strict=True),
    Due("all tasks are asked about", fx.Reconcile, SETTINGS.mesos.reconcile_interval_s, lambda: state_of()),
    Due("a launch without a word is asked about", fx.Reconcile, SETTINGS.tasks.launch_doubt_s,
        lambda: state_of(job(), of_job(state=TaskState.LAUNCHED)), is_strict=True),
    Due("a kill is repeated", fx.Kill, SETTINGS.tasks.kill_resend_s,
        lambda: state_of(job(kill_requested=True, state=JobState.KILLING), of_job(kill_sent_at=T0))),
    Due("a kill for excess is repeated", fx.Kill, SETTINGS.tasks.kill_resend_s,
        lambda: state_of(job(), of_job(kill_sent_at=T0, excess="much"))),
    Due("an unreachable task is given up", saves.SaveTask, SETTINGS.mesos.unreachable_timeout_s,
        lambda: state_of(job(), of_job(state=TaskState.UNREACHABLE, unreachable_since=T0, heard_at=T0 + 119))),
    Due("a lost node is forgotten", saves.ForgetNode, SETTINGS.memory.keep_lost_nodes_s,
        lambda: state_of(Node(A1, "h1", lost_at=T0)), is_strict=True),
]  # fmt: skip


def asked(state: State) -> State:
    """The reset was asked for again and again."""
    known = state.gpus.cards[G0]
    assert known.reset is not None
    state.put(replace(known, reset=replace(known.reset, sent_at=T0 + SETTINGS.tasks.reset_timeout_s - 1)))
    return state


@pytest.mark.parametrize("due", DUE, ids=[due.name for due in DUE])
def test_act_that_time_asks_for_is_done_when_it_is_due(due: Due) -> None:
    for over_s in (-0.01, 0.0, 0.01):
        state = due.state()
        state.work.tended_at = T0 + due.after_s + over_s - 1  # the scheduler was there all the time
        turn = Turn(state, SETTINGS, T0 + due.after_s + over_s)
        due.call(turn)
        is_due = over_s > 0 if due.is_strict else over_s >= 0
        assert bool(every(turn.effects, due.kind)) is is_due, (over_s, turn.effects)


def held(**fields: object) -> Callable[[], State]:
    """A task of a job that was unreachable for long."""
    return lambda: state_of(
        job(**fields), of_job(state=TaskState.UNREACHABLE, unreachable_since=T0, heard_at=T0 + 900)
    )


NEVER = [
    Due("no role is read while no job waits", fx.ReadRole, 1000.0, lambda: state_of(job(), of_job()), role.on_tick),
    Due("no reset is asked for without a monitor", fx.AskReset, 5.0,
        lambda: without_monitor(resetting()), cards.on_tick),
    Due("no reset is asked for while the master is away", fx.AskReset, 5.0,
        lambda: away(resetting()), cards.on_tick),
    Due("no cover is ended while the master is away", fx.Kill, 1000.0,
        lambda: away(state_of(task("c", covers=G0), idle={G0: T0})), covers.on_tick),
    Due("no cover is ended that is used", fx.Kill, 1000.0,
        lambda: state_of(task("c", covers=G0), task("s", gpus=(G0,), share=SHARE), idle={G0: T0}), covers.on_tick),
    Due("no cover is given up that is used", saves.ForgetTask, 1000.0,
        lambda: state_of(task("c", TaskState.UNREACHABLE, covers=G0, unreachable_since=T0),
                         task("s", gpus=(G0,), share=SHARE)), covers.on_tick),
    Due("no cover is given up with others", saves.SaveTask, 1000.0,
        lambda: state_of(task("c", TaskState.UNREACHABLE, covers=G0, unreachable_since=T0, heard_at=T0 + 999),
                         connected=False)),
    Due("no unknown task is given up", saves.SaveTask, 1000.0,
        lambda: state_of(task("x", TaskState.UNREACHABLE, job_id=JobId("x"), unreachable_since=T0, heard_at=T0 + 999,
                              unknown=Unknown(T0, Listed(TaskId("x"), A1, "TASK_RUNNING"))))),
    Due("no task is given up that is back", saves.SaveTask, 1000.0,
        lambda: state_of(job(), of_job(unreachable_since=T0, heard_at=T0 + 999, evicted="why", kill_sent_at=T0 + 999))),
    Due("no running task is asked about", fx.Reconcile, 800.0, lambda: state_of(job(), of_job())),
    Due("no kill is repeated that no user wants", fx.Kill, 1000.0, lambda: state_of(job(), of_job(kill_sent_at=T0))),
    Due("no node is forgotten that is there", saves.ForgetNode, 1e6, lambda: state_of(Node(A1, "h1"))),
    Due("no node is forgotten on which a task lives", saves.ForgetNode, 1e6,
        lambda: state_of(Node(A1, "h1", lost_at=T0), Node(AgentId("a2"), "h2", lost_at=T0 + 1e6), job(), of_job())),
    Due("no resize is asked for that is answered", fx.AskResize, 1000.0,
        lambda: state_of(task(gpus=(G0,), share=SHARE, resize=Resizing(1, SHARE, SHARE, T0, answered=True))),
        resizing.on_tick),
    Due("no resize is asked for of a task that does not run", fx.AskResize, 1000.0,
        lambda: state_of(task(state=TaskState.STARTING, gpus=(G0,), share=SHARE, resize=Resizing(1, SHARE, SHARE, T0))),
        resizing.on_tick),
    Due("no share is asked for of a card that is not reported", fx.AskResize, 1000.0,
        lambda: state_of(task(gpus=(G0,), share=SHARE, resize=Resizing(0, SHARE, SHARE, T0))), resizing.on_tick),
]  # fmt: skip


def without_monitor(state: State) -> State:
    """The node's monitor has ended."""
    state.put(replace(state.cluster.nodes[A1], monitor=None))
    return state


def away(state: State) -> State:
    """The master is away."""
    state.mesos.connected = False
    return state


@pytest.mark.parametrize("due", NEVER, ids=[due.name for due in NEVER])
def test_act_that_no_time_asks_for_is_never_done(due: Due) -> None:
    state = due.state()
    state.work.tended_at = T0 + due.after_s - 1
    turn = Turn(state, SETTINGS, T0 + due.after_s)
    due.call(turn)
    assert every(turn.effects, due.kind) == []


@pytest.mark.parametrize(("killed", "state"), [(True, TaskState.ABANDONED), (False, TaskState.UNREACHABLE)])
def test_instance_is_given_up_as_any_task_only_if_it_is_to_end(killed: bool, state: TaskState) -> None:
    known = held(app_version=1.0, kill_requested=killed, state=JobState.UNREACHABLE)()
    known.work.tended_at = known.apps.looked_at_apps = T0 + 1000
    known.work.tended_at -= 1
    known.apps.changed_apps.clear()  # what its app wants is another matter
    on_tick(Turn(known, SETTINGS, T0 + 1000))
    assert known.work.tasks[TaskId("j.1")].state is state


@pytest.mark.parametrize(("url", "is_kept"), [("http://a", False), ("http://b", True), ("", True)])
def test_lost_node_is_forgotten_at_once_if_another_is_in_its_place(url: str, is_kept: bool) -> None:
    lost, other = Node(A1, "h1", url, lost_at=T0), Node(AgentId("a2"), "h1", "" if not url else "http://a")
    state = state_of(lost, other)
    turn = Turn(state, SETTINGS, T0 + 1)
    on_tick(turn)
    assert (A1 in state.cluster.nodes) is is_kept
    assert every(turn.effects, saves.ForgetNode) == ([] if is_kept else [saves.ForgetNode(A1)])


@pytest.mark.parametrize("others", [True, False])
def test_kills_under_way_hold_back_those_of_their_owner(others: bool) -> None:
    for told_at, waits in ((T0 - 2.0, True), (T0 - 2.1, False)):
        mine = job(owner="ann", kill_requested=True)
        state = state_of(mine, of_job())
        for number in range(evictions.MAX_KILLS):
            name = f"k{number}"
            owner = "bob" if others and number == 1 else "ann"
            state.put(replace(mine, id=JobId(name), task_id=TaskId(f"{name}.1"), owner=owner))
            state.put(task(f"{name}.1", job_id=JobId(name), kill_sent_at=told_at))
        turn = Turn(state, SETTINGS, T0)
        assert evictions.has_turn(turn, mine, state.work.tasks[TaskId("j.1")]) is (others or not waits)
        evictions.send_waiting_kills(turn, [A1])
        assert len(every(turn.effects, fx.Kill)) == (others or not waits)
