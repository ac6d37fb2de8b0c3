"""The table of a task's life in its executor: each pair, what follows, and all lives that can be lived."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from isolator.executor import life as life_module
from isolator.executor.life import (
    TABLE,
    Action,
    Effect,
    End,
    Event,
    Ignored,
    Kind,
    Life,
    Move,
    Refused,
    State,
    Terms,
    Verdict,
    arrows,
    mermaid,
    step,
)
from isolator.executor.main import DO, refusal
from mesos_gpu.model.tasks.assignment import Outcome

S, K, A = State, Kind, Action
TASK: Final = "job-1.1"
TERMS: Final = Terms(kill_grace_s=7.0, timeout_s=90.0)
OWN: Final = Verdict("TASK_FAILED", "in its own words", Outcome(exit_status=3))
END: Final = End("TASK_KILLED", "killed on request", 7.0)
VERDICTS: Final = (K.NOT_STARTED, K.BROKEN, K.ENDED)
OF_AGENT: Final = frozenset({K.LAUNCH, K.GO, K.KILL, K.SHUTDOWN, K.GONE, K.RESIZE, K.NOTICE, K.CHANNEL})
DOCUMENT: Final = Path(life_module.__file__).parents[2] / "docs/development.md"
#: Updates that the agent gets, by state and event. TASK_STARTING where the start takes a while, and in a gang's place;
#: TASK_KILLING where an end is asked for, and not where a limit of the task ends it; one last update of what is undone.
SAID: Final[dict[tuple[State, Kind], tuple[Action, ...]]] = {
    (S.PREPARING, K.CLAIMED): (A.SAY_STARTING,),
    (S.PREPARING, K.IN_PLACE): (A.SAY_STARTING,),
    (S.FETCHING, K.IN_PLACE): (A.SAY_STARTING,),
    (S.CANCELLING, K.CLAIMED): (A.SAY_STARTING,),
    (S.CANCELLING, K.IN_PLACE): (A.SAY_STARTING,),
    (S.STARTING, K.STARTED): (A.SAY_RUNNING,),
    (S.ABORTING, K.STARTED): (A.SAY_RUNNING, A.SAY_KILLING),
    **{(S.RUNNING, kind): (A.SAY_KILLING,) for kind in (K.KILL, K.SHUTDOWN, K.GONE, K.UNHEALTHY)},
    (S.RUNNING, K.HEALTH): (A.SAY_HEALTH,),
    (S.RUNNING, K.RESIZED): (A.SAY_RESIZED,),
    (S.RUNNING, K.NOTICED): (A.SAY_NOTICED,),
    (S.RUNNING, K.LISTENING): (A.SAY_LISTENING,),
    (S.RUNNING, K.CHECKED): (A.SAY_CHECKED,),
    **{(state, K.CHECKPOINT): (A.SAY_CHECKPOINT,) for state in (S.RUNNING, S.KILLING, S.DYING)},
    (S.UNDOING, K.UNDONE): (A.SAY_END,),
}
#: Actions with which a state begins, after its updates; CANCELLING: of a fetch only.
ENTERED: Final[dict[State, list[Action]]] = {
    S.PREPARING: [A.PREPARE],
    S.FETCHING: [A.FETCH],
    S.STARTING: [A.START],
    S.ABORTING: [A.ABORT_START],
    S.RUNNING: [A.LIMIT_TIME],
    S.KILLING: [A.TERMINATE],
    S.DYING: [A.LIMIT_DYING],
    S.UNDOING: [A.UNDO],
    S.LEAVING: [A.LEAVE],
}
#: Other actions that leave the state as it is.
DONE_WITHIN: Final[dict[tuple[State, Kind], tuple[Action, ...]]] = {
    (S.RUNNING, K.CHECKS_READY): (A.CHECK,),
    (S.RUNNING, K.RESIZE): (A.RESIZE,),
    (S.RUNNING, K.NOTICE): (A.NOTICE,),
    (S.RUNNING, K.CHANNEL): (A.OPEN_CHANNEL,),
    **{(state, K.CHECKS_READY): (A.DISMISS_CHECKS,) for state in (S.KILLING, S.DYING, S.UNDOING, S.REPORTED)},
}
#: Events that are handed to a later state.
KEPT_EVENTS: Final = {
    *((state, K.GO) for state in (S.WAITING, S.PREPARING, S.FETCHING)),
    *((state, K.GONE) for state in State if state not in (S.WAITING, S.REPORTED, S.LEAVING, S.DONE)),
    (S.STARTING, K.OVER_DISK),
    (S.STARTING, K.CHECKPOINT),
    (S.KILLING, K.ENDED),
}


def event_of(kind: Kind) -> Event:
    """Make an event of that kind, of this task, with all that it must say."""
    named = TASK if kind in (K.LAUNCH, K.KILL, K.ACKNOWLEDGED) else ""
    terms = TERMS if kind in (K.READY, K.IN_PLACE) else None
    healthy = False if kind is K.HEALTH else None
    exit_code = 1 if kind is K.GONE else 0
    verdict = OWN if kind in VERDICTS else None
    return Event(kind, named, "why", verdict=verdict, terms=terms, healthy=healthy, exit_code=exit_code)


def life_in(state: State) -> Life:
    """A life that has come to that state, with what it must know there."""
    begun = Life(state, TASK, TERMS) if state is not S.WAITING else Life()
    if state in (S.CANCELLING, S.ABORTING, S.KILLING, S.DYING):
        return begun._replace(end=END)
    return begun._replace(verdict=OWN) if state in (S.UNDOING, S.REPORTED) else begun


def actions(effects: tuple[Effect, ...]) -> list[Action]:
    return [effect.action for effect in effects]


# --- the table


def test_table_has_each_pair_once() -> None:
    named = Counter(
        (state, kind)
        for state, (moves, others) in life_module._ROWS.items()
        for kinds in (moves, *others.values())
        for kind in kinds
    )
    assert set(named) == set(product(State, Kind)) == set(TABLE)
    assert [pair for pair, times in named.items() if times > 1] == []


def test_action_is_asked_for_by_the_table_and_carried_out() -> None:
    asked = {action for pair in TABLE.values() if isinstance(pair, Move) for action in pair.does}
    assert asked | {A.COMPLAIN} == set(Action) == set(DO)


def stated_ways() -> dict[tuple[State, Kind], State]:
    """Read from docs/development.md which event leads to which other state."""
    _, _, text = DOCUMENT.read_text().partition("<!-- life cycle: executor -->")
    lines = re.findall(r"^ +(\w+) --> (\w+): (.+)$", text.partition("<!-- end -->")[0], re.MULTILINE)
    return {(State(a), Kind(kind)): State(b) for a, b, kinds in lines for kind in kinds.split(", ")}


def stated_actions(state: State, kind: Kind, to: State) -> list[Action]:
    """Return what an event is to have done, by the tables of this file."""
    actions = [*SAID.get((state, kind), ()), *DONE_WITHIN.get((state, kind), ())]
    if to is not state:
        actions += [A.ABORT_FETCH] if (state, to) == (S.FETCHING, S.CANCELLING) else ENTERED.get(to, [])
    elif kind is K.LAUNCH and state not in (S.LEAVING, S.DONE):
        actions.append(A.REFUSE_TASK)
    if kind is K.GONE and state not in (S.WAITING, S.REPORTED, S.LEAVING, S.DONE):
        actions.append(A.LIMIT_STAY)
    return actions


def test_pair_of_state_and_event_says_and_does_as_stated() -> None:
    ways, wrong = stated_ways(), []
    for state, kind in product(State, Kind):
        before, to = life_in(state), ways.get((state, kind), state)
        after, effects = step(before, event_of(kind))
        stated = (to, stated_actions(state, kind, to), (state, kind) in KEPT_EVENTS)
        done = (after.state, actions(effects), kind in {each.kind for each in after.kept})
        nothing = stated == (state, [], False)
        if done != stated and not (nothing and done == (state, [A.COMPLAIN], False)):
            wrong.append((state, kind, done, stated))
        if nothing:
            assert after == before, (state, kind)
    assert wrong == []


def test_complaint_names_event_and_state_and_is_never_of_the_agent() -> None:
    refused = [pair for pair, what in TABLE.items() if isinstance(what, Refused)]
    for state, kind in refused:
        _, effects = step(life_in(state), event_of(kind))
        assert refusal(effects[0]) == (
            f"{kind.value} while {state.value}: no step of this state reports this event"
        )
    assert OF_AGENT.isdisjoint({kind for _, kind in refused})


def test_verdict_is_known_from_undoing_on_and_exit_code_with_the_end_of_the_connection() -> None:
    for state, kind in product(State, Kind):
        before = life_in(state)
        after, _ = step(before, event_of(kind))
        known = after.state in (S.UNDOING, S.REPORTED) or before.verdict is not None
        assert (after.verdict is not None) == known, (state, kind)
        assert after.exit_code == (kind is K.GONE and state is not S.DONE), (state, kind)


def test_every_state_is_reached_and_leads_to_the_end() -> None:
    ways = [(state, to) for state, _, to in arrows()]
    reached, ending = {S.WAITING}, {S.DONE}
    for _ in State:
        reached |= {to for state, to in ways if state in reached}
        ending |= {state for state, to in ways if to in ending}
    assert reached == ending == set(State)


def test_the_drawing_has_each_state_and_each_way_once() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    drawn = [line.split(":")[0].split() for line in lines[1:]]
    assert ["[*]", "-->", "waiting"] in drawn
    assert ["done", "-->", "[*]"] in drawn
    assert [f"{a}>{b}" for a, _, b in drawn if "[*]" not in (a, b)] == [
        f"{state.value}>{to.value}" for state, _, to in arrows()
    ]
    assert "    running --> killing: kill, shutdown, gone, unhealthy, over_disk, timed_out" in lines


# --- what is told


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (Event(K.KILL, TASK), End("TASK_KILLED", "killed on request", 7.0)),
        (Event(K.KILL, TASK, grace_s=0.0), End("TASK_KILLED", "killed on request", 0.0)),
        (Event(K.SHUTDOWN, grace_s=4.0), End("TASK_KILLED", "the agent shut the executor down", 4.0)),
        (Event(K.GONE), End("TASK_KILLED", "the executor ended", 0.0)),
        (Event(K.TIMED_OUT), End("TASK_FAILED", "Ran longer than its timeout_s of 90", 7.0)),
        (Event(K.OVER_DISK, message="out of disk"), End("TASK_FAILED", "out of disk", 7.0)),
        (Event(K.UNHEALTHY, message="it fails"), End("TASK_KILLED", "unhealthy: it fails", 7.0, "it fails")),
    ],
    ids=lambda each: each.kind.value if isinstance(each, Event) else "",
)
def test_first_wish_for_the_end_is_reported(event: Event, end: End) -> None:
    killing, _ = step(life_in(S.RUNNING), event)
    assert killing.end == end
    for more in (Event(K.KILL, TASK, grace_s=1.0), Event(K.SHUTDOWN, grace_s=1.0), Event(K.TIMED_OUT)):
        assert step(killing, more)[0].end == end
    dying, _ = step(killing, Event(K.TERMINATED))
    how = Outcome(signal=9, infrastructure=True)
    undoing, _ = step(dying, Event(K.ENDED, verdict=Verdict("TASK_FAILED", "signal 9", how)))
    assert undoing.verdict == Verdict(end.state, end.message, Outcome(signal=9, unhealthy=end.unhealthy))


def test_a_command_that_outlives_sigkill_is_reported_without_its_status() -> None:
    undoing, effects = step(life_in(S.DYING), Event(K.DEATH_OVERDUE))
    assert undoing.verdict == Verdict("TASK_KILLED", "killed on request", Outcome())
    assert actions(effects) == [A.UNDO]


def test_a_command_that_ends_within_the_grace_is_undone_when_the_grace_is_over() -> None:
    killing, effects = step(life_in(S.KILLING), event_of(K.ENDED))
    assert (killing.state, effects) == (S.KILLING, ())
    undoing, effects = step(killing, Event(K.TERMINATED))
    assert actions(effects) == [A.LIMIT_DYING, A.UNDO]
    assert undoing.verdict == Verdict("TASK_KILLED", "killed on request", Outcome(exit_status=3))


def test_go_may_come_before_the_member_is_in_its_place() -> None:
    waiting, _ = step(Life(), Event(K.GO))
    preparing, _ = step(waiting, Event(K.LAUNCH, TASK))
    again, _ = step(preparing, Event(K.GO))
    fetching, _ = step(again, Event(K.SET_UP))
    assert (fetching.state, len(fetching.kept)) == (S.FETCHING, 1)
    starting, effects = step(fetching, Event(K.IN_PLACE, terms=TERMS))
    assert (starting.state, actions(effects)) == (S.STARTING, [A.SAY_STARTING, A.START])
    alone, effects = step(fetching, Event(K.READY, terms=TERMS))
    assert (alone.state, alone.kept, actions(effects)) == (S.STARTING, (), [A.START])


@pytest.mark.parametrize("state", [S.CANCELLING, S.ABORTING])
def test_task_that_cannot_start_after_a_kill_is_killed_in_its_own_words(state: State) -> None:
    undoing, _ = step(life_in(state), event_of(K.NOT_STARTED))
    assert undoing.verdict == OWN._replace(state="TASK_KILLED")
    broken, _ = step(life_in(state), event_of(K.BROKEN))
    assert broken.verdict == OWN, "the host's fault is told as such"


def test_executor_without_its_agent_ends_when_all_is_undone() -> None:
    killing, effects = step(life_in(S.RUNNING), event_of(K.GONE))
    assert actions(effects) == [A.SAY_KILLING, A.TERMINATE, A.LIMIT_STAY]
    dying, effects = step(killing, Event(K.TERMINATED))
    assert actions(effects) == [A.LIMIT_DYING], "the stay is limited once"
    undoing, _ = step(dying, event_of(K.ENDED))
    done, effects = step(undoing, Event(K.UNDONE))
    assert (done.state, done.exit_code, actions(effects)) == (S.DONE, 1, [A.SAY_END])


def test_verdict_of_a_failed_undo_is_the_last_update() -> None:
    reported, effects = step(life_in(S.UNDOING), Event(K.UNDONE, verdict=OWN._replace(message="it failed")))
    assert actions(effects) == [A.SAY_END]
    assert effects[0].life.verdict == reported.verdict == OWN._replace(message="it failed")


def test_the_latest_health_is_remembered_while_it_runs() -> None:
    healthy, effects = step(life_in(S.RUNNING), Event(K.HEALTH, healthy=True))
    assert (healthy.healthy, actions(effects)) == (True, [A.SAY_HEALTH])
    assert step(healthy._replace(state=S.KILLING), Event(K.HEALTH, healthy=False))[0].healthy is True


def test_events_of_another_task_change_nothing() -> None:
    for state, kind in product(State, (K.KILL, K.ACKNOWLEDGED)):
        assert step(life_in(state), Event(kind, "another")) == (life_in(state), ())
    for kind in (K.KILL, K.ACKNOWLEDGED):
        assert step(Life(), Event(kind)) == (Life(), ()), "no task was launched"


def test_a_second_task_is_refused_and_the_first_stays() -> None:
    after, effects = step(life_in(S.RUNNING), Event(K.LAUNCH, "second"))
    assert after == life_in(S.RUNNING)
    assert (actions(effects), effects[0].event.task_id) == ([A.REFUSE_TASK], "second")


# --- all lives


class World(NamedTuple):
    """An executor with the threads that are at work, what they have posted, and its agent.

    `threads`: which are at work. `said`: the updates. `may`: what can happen once more.
    """

    life: Life = Life()
    threads: frozenset[str] = frozenset()
    queue: tuple[Kind, ...] = ()
    said: tuple[Action, ...] = ()
    done: frozenset[Action] = frozenset()
    timers: frozenset[Kind] = frozenset()
    may: frozenset[Kind] = frozenset({K.LAUNCH, K.GO, K.KILL, K.SHUTDOWN, K.GONE})


#: What a thread posts: the event, and the thread that goes on; "": it has ended.
POSTS: Final[dict[str, tuple[tuple[Kind, str], ...]]] = {
    "prepare": (
        (K.CLAIMED, "set up"), (K.IN_PLACE, ""), (K.NOT_STARTED, ""), (K.BROKEN, ""), (K.SET_UP, ""),
    ),
    "set up": ((K.SET_UP, ""), (K.READY, ""), (K.BROKEN, "")),
    "fetch": ((K.READY, ""), (K.IN_PLACE, ""), (K.NOT_STARTED, ""), (K.BROKEN, "")),
    "start": ((K.STARTED, "watch"), (K.NOT_STARTED, ""), (K.BROKEN, "")),
    "watch": ((K.CHECKS_READY, "wait"), (K.ENDED, ""), (K.BROKEN, "")),
    "wait": ((K.ENDED, ""),),
    "upkeep": ((K.OVER_DISK, ""),),
    "checker": ((K.HEALTH, "checker"), (K.UNHEALTHY, "")),
    "resize": ((K.RESIZED, ""),),
    "notice": ((K.NOTICED, ""),),
    "terminate": ((K.TERMINATED, ""), (K.BROKEN, "")),
    "undo": ((K.UNDONE, ""),),
}  # fmt: skip
BEGINS: Final = {
    A.PREPARE: "prepare",
    A.FETCH: "fetch",
    A.START: "start",
    A.RESIZE: "resize",
    A.NOTICE: "notice",
    A.TERMINATE: "terminate",
    A.UNDO: "undo",
}
LIMITS: Final = {A.LIMIT_TIME: K.TIMED_OUT, A.LIMIT_DYING: K.DEATH_OVERDUE, A.LIMIT_STAY: K.OVERDUE}
SAYS: Final = (A.SAY_STARTING, A.SAY_RUNNING, A.SAY_HEALTH, A.SAY_KILLING, A.SAY_END)
AWAIT: Final = (S.WAITING, S.AT_BARRIER, S.REPORTED, S.LEAVING)  # what others do
MAX_QUEUED: Final = 2


def nexts(world: World) -> Iterator[World]:
    """What can be the case next."""
    if world.queue:
        yield handled(world._replace(queue=world.queue[1:]), world.queue[0])
    if len(world.queue) < MAX_QUEUED:
        for thread in world.threads:
            for kind, then in POSTS[thread]:
                threads = world.threads - {thread} | ({then} if then else set())
                yield posted(world._replace(threads=threads), kind)
        for kind in world.may - (set() if "upkeep" in world.threads else {K.CHECKPOINT}):
            gone = (
                {K.GONE, K.ACKNOWLEDGED, K.KILL, K.RESIZE, K.NOTICE, K.GO, K.LAUNCH}
                if kind is K.GONE
                else {kind}
            )
            yield posted(world._replace(may=world.may - gone), kind)
    for kind in world.timers if not world.queue else ():
        yield handled(world._replace(timers=world.timers - {kind}), kind)


def posted(world: World, kind: Kind) -> World:
    return world._replace(queue=(*world.queue, kind))


def handled(world: World, kind: Kind) -> World:
    life, effects = step(world.life, event_of(kind))
    for effect in effects:
        world = carried_out(world, effect)
    return world._replace(life=life)


def carried_out(world: World, effect: Effect) -> World:
    """With the rules that no table may break."""
    action, threads, may = effect.action, world.threads, world.may
    assert action is not A.COMPLAIN, f"refused: {effect.event.kind} in {world}"
    if action in BEGINS:
        assert threads.isdisjoint({"prepare", "set up", "fetch", "start", "undo"}), (action, world)
        assert action not in world.done, f"{action} twice: {world}"
        assert action is not A.START or effect.life.end is None, "nothing starts that is to end"
        threads |= {BEGINS[action], "upkeep"} if action is A.START else {BEGINS[action]}
    if action in (A.TERMINATE, A.UNDO):
        threads -= {"checker"}
    if action is A.UNDO:
        assert "terminate" not in threads or effect.event.kind is K.BROKEN, f"the grace is not over: {world}"
        threads -= {"upkeep"}
    if action is A.CHECK:
        threads |= {"checker"}
    if action in SAYS:
        order = [SAYS.index(each) for each in (*world.said, action)]
        assert order == sorted(order), f"{action} after {world.said}"
        assert A.SAY_END not in world.said
        said = world.said if action in world.said else (*world.said, action)
        world = world._replace(said=said)
    if action in (A.SAY_RESIZED, A.SAY_NOTICED, A.SAY_CHECKPOINT):
        assert A.SAY_RUNNING in world.said and A.SAY_END not in world.said, world  # noqa: PT018
    if action is A.SAY_END:
        assert A.UNDO in world.done, "a claim is released before the last word"
        assert "undo" not in threads
        may |= {K.ACKNOWLEDGED} if K.GONE in may else set()
    if action is A.LEAVE:
        assert world.done.isdisjoint({A.PREPARE}) or A.SAY_END in world.said
        may -= {K.LAUNCH, K.GO, K.KILL, K.ACKNOWLEDGED}
    timers = world.timers | ({LIMITS[action]} if action in LIMITS else set())
    return world._replace(threads=threads, may=may, timers=timers, done=world.done | {action})


#: Starts of lives, by what may happen beside the launch. All that may happen at once would be too many lives.
FEW: Final = {
    name: World(may=frozenset({K.LAUNCH, *kinds}))
    for name, kinds in {
        "gang": (K.GO, K.KILL),
        "kill": (K.KILL,),
        "shutdown": (K.SHUTDOWN,),
        "gone": (K.GONE,),
        "kill and gone": (K.KILL, K.GONE),
        "resize": (K.RESIZE,),
        "notice": (K.NOTICE,),
        "checkpoint": (K.CHECKPOINT,),
    }.items()
}
ALL: Final = (
    World(),
    World(may=frozenset({K.LAUNCH, K.KILL, K.RESIZE, K.GONE})),
    World(may=frozenset({K.LAUNCH, K.KILL, K.NOTICE})),
    World(may=frozenset({K.LAUNCH, K.KILL, K.CHECKPOINT})),
)


def lived(first: World) -> set[World]:
    """Return all that can be the case: threads post in any order, with up to MAX_QUEUED events queued."""
    seen, todo = {first}, [first]
    while todo:
        world = todo.pop()
        if world.life.state is S.DONE:
            continue
        # A command may run for ever, and one that waits in a driver is not even ended by SIGKILL.
        endless = {"watch", "wait", "checker", "upkeep"} if world.life.state is not S.RUNNING else set()
        if not (world.queue or world.threads - endless or world.timers):
            assert world.life.state in AWAIT, f"nothing is at work, and nothing ends it: {world}"
        new = set(nexts(world)) - seen
        seen |= new
        todo += new
    return seen


@pytest.fixture(scope="module")
def few() -> set[World]:
    """Return the lives of few starts, which break no rule, with one queued event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "MAX_QUEUED", 1)
        return set().union(*map(lived, FEW.values()))


def check_events(worlds: set[World]) -> None:
    """Fail where lives meet an event that the table refuses, or miss one that leads to another state."""
    met = {(world.life.state, world.queue[0]) for world in worlds if world.queue}
    met |= {(world.life.state, kind) for world in worlds for kind in world.timers}
    met |= {(world.life.state, each.kind) for world in worlds for each in world.life.kept}
    leads = {pair for pair, what in TABLE.items() if isinstance(what, Move) and what.to is not pair[0]}
    assert {pair for pair, what in TABLE.items() if isinstance(what, Refused)}.isdisjoint(met)
    assert leads - met == {
        (S.AT_BARRIER, K.BROKEN),  # no thread is to be had for the start
        (S.RUNNING, K.NOT_STARTED),
        (S.KILLING, K.NOT_STARTED),
    }, "faults of the executor itself"


def test_lives_break_no_rule_and_can_end(few: set[World]) -> None:
    check_events(few)


@pytest.mark.long
@pytest.mark.parametrize("max_queued", [1, 2])
def test_lives_in_which_more_happens_break_no_rule(max_queued: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "MAX_QUEUED", max_queued)
    check_events(set().union(*map(lived, ALL)))


@pytest.mark.parametrize(
    ("start", "pair", "wrong"),
    [
        ("kill", (S.RUNNING, K.ENDED), Move(S.REPORTED, (A.SAY_END,), life_module._own)),
        ("gone", (S.ABORTING, K.STARTED), Move(S.RUNNING, (A.SAY_RUNNING,))),
        ("kill", (S.CANCELLING, K.READY), Move(S.STARTING, (A.START,))),
        ("kill", (S.KILLING, K.ENDED), Move(S.UNDOING, (A.UNDO,), life_module._as_wanted)),
        ("kill", (S.KILLING, K.HEALTH), Move(S.KILLING, (A.SAY_HEALTH,))),
        ("kill", (S.STARTING, K.OVER_DISK), life_module.NOT_AT_WORK),
        ("kill", (S.PREPARING, K.KILL), Move(S.UNDOING, (A.UNDO,), life_module._killed)),
        ("gone", (S.REPORTED, K.GONE), life_module.OVER),
        ("kill", (S.DYING, K.DEATH_OVERDUE), life_module.OVER),
        ("resize", (S.UNDOING, K.RESIZED), life_module.NOT_AT_WORK),
        ("resize", (S.REPORTED, K.RESIZED), Move(S.REPORTED, (A.SAY_RESIZED,))),
        ("notice", (S.UNDOING, K.NOTICED), life_module.NOT_AT_WORK),
        ("notice", (S.REPORTED, K.NOTICED), Move(S.REPORTED, (A.SAY_NOTICED,))),
        ("checkpoint", (S.STARTING, K.CHECKPOINT), life_module.NOT_AT_WORK),
    ],
)
def test_table_with_a_mistake_is_found(
    start: str, pair: tuple[State, Kind], wrong: Move | Ignored | Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, pair, wrong)
    with pytest.raises(AssertionError):
        lived(FEW[start])
