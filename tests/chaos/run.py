"""Long runs of random acts, and the search for the shortest story of a failure.

A run consists of episodes, each with a cluster of its own and a quiet time at the end. A failing episode is a list of
acts that can be replayed and shortened.
"""

import contextlib
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Final, TypeVar

from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.tasks.task import Task
from tests.chaos.acts import ACTS, Act, do, pinned
from tests.chaos.apps import ACTS as APPS
from tests.chaos.settle import settle
from tests.chaos.violation import Violation
from tests.chaos.world import World

T = TypeVar("T")
EPISODES: Final = (
    150,
    300,
    300,
    1200,
)  # steps of an episode, by chance: short ones give short stories, long ones reach more states
_SHRINK_STEPS: Final = 50_000  # steps of the search for a shorter story
_FEW: Final = 30  # most acts of which pairs are left out
_NAMES: Final = tuple(ACTS)
WEIGHTS: Final = tuple(weight for weight, _ in ACTS.values())


def _mix(changes: Mapping[str, float], of: Sequence[float]) -> tuple[float, ...]:
    """Return a mix in which some acts have other weights."""
    return tuple(changes.get(name, weight) for name, weight in zip(_NAMES, of, strict=True))


_MUCH: Final = {"go on": 20, "deliver many": 2, "restart app": 4, "undo deployment": 2, "settle": 0.5}
#: Many shares on few cards, which last until they are resized.
_MANY_SHARES: Final = {
    "submit share": 6,
    "submit": 0.3,
    "resize": 5,
    "deafen": 2,
    "progress": 0.5,
    "go on": 16,
    "settle": 0.5,
}
_NO_JOBS: Final = ("submit", "reset", "refuse", "garble", "miss")
#: Weights for deployments, which get further without jobs and with fewer faults.
APPS_ALONE: Final = tuple(
    0.0 if name in _NO_JOBS else weight * _MUCH.get(name, 1) for name, (weight, _) in ACTS.items()
)
SHARES_ALONE: Final = tuple(
    0.0 if name in APPS else weight * _MANY_SHARES.get(name, 1) for name, (weight, _) in ACTS.items()
)
#: Jobs of a tree of queues that changes now and then, some of which are preempted.
_QUEUES: Final = {
    "change queues": 0.6,
    "submit to queue": 7.0,
    "submit": 1.0,
    "checkpoint": 2.0,
    "clock steps": 0.1,
    "while": 8.0,
    "go on": 4.0,
}
QUEUES: Final = _mix({**_QUEUES, **dict.fromkeys(APPS, 0.0)}, WEIGHTS)
#: `QUEUES` with few faults, so that nodes are full and jobs are preempted more often.
_RECLAIMS: Final = {
    **dict.fromkeys(
        ("submit", "submit share", "resize", "deafen", "reset", "refuse", "keeper dies", "garble", "miss"),
        0.0,
    ),
    "change queues": 1.5,
    "submit to queue": 9.0,
    "kill": 0.5,
    "progress": 3.0,
    "deliver": 8.0,
    "deliver many": 3.0,
    "lose": 0.2,
    "repeat": 0.3,
    "resend": 0.5,
    "calls are lost": 0.2,
    "offer": 4.0,
    "disconnect": 0.05,
    "restart": 0.2,
    "drain": 0.1,
    "undrain": 0.3,
    "other": 0.1,
    "flap": 0.1,
    "cut": 0.05,
    "die": 0.02,
    "upgrade": 0.0,
    "moment": 2.0,
    "while": 6.0,
    "go on": 12.0,
    "settle": 0.05,
}
RECLAIMS: Final = _mix(_RECLAIMS, QUEUES)
#: `QUEUES` with pools, classes, budgets whose periods pass, and clocks that are set back.
_TERMS: Final = {
    "change queues": 0.1,
    "change terms": 0.8,
    "submit to queue": 2.0,
    "submit in class": 6.0,
    "clock steps": 0.4,
    "set clock": 0.5,
    "restart": 0.8,
}
TERMS: Final = _mix(_TERMS, QUEUES)
#: Two schedulers.
_SWITCHES: Final = {
    "switch": 1.5,
    "pause leader": 1.0,
    "wake leader": 2.0,
    "zookeeper": 2.0,
    "restart": 0.2,
    "older state": 0.2,
}
SWITCHES: Final = _mix(_SWITCHES, WEIGHTS)
#: Job arrays, of which ranges are killed, with and without a tree of queues.
_ARRAYS: Final = {
    "submit array": 4.0,
    "kill tasks": 1.0,
    "change queues": 0.05,
    "submit": 1.0,
    "submit share": 0.3,
    "restart": 1.0,
    "go on": 3.0,
}
ARRAYS: Final = _mix({**_ARRAYS, **dict.fromkeys(APPS, 0.0)}, WEIGHTS)
#: Jobs that idle and wake, in trees of queues that end them for it, with monitors that come and go.
_IDLES: Final = {
    **_RECLAIMS,
    "change queues": 0.0,
    "change idle rules": 1.0,
    "submit to queue": 6.0,
    "do": 6.0,
    "wake": 2.0,
    "go on": 20.0,
    "keep": 0.4,
    "monitor dies": 0.5,
    "restart": 0.3,
    "progress": 5.0,
    "while": 10.0,
    "long": 0.5,
}
IDLES: Final = _mix(_IDLES, QUEUES)
#: Queues whose figures change by the hour, dedicated pools, and clocks that pass changes and are set back a little.
_HOURS: Final = {
    **_RECLAIMS,
    "change queues": 0.0,
    "change hours": 0.8,
    "pass hours": 0.7,
    "set clock in hours": 0.2,
    "submit": 0.3,
    "restart": 0.3,
    "long": 0.2,
}
HOURS: Final = _mix(_HOURS, QUEUES)
#: Bookings, jobs that use them and jobs in their way, nodes of them that are lost, clocks that pass begins and ends.
_BOOKINGS: Final = {
    **_RECLAIMS,
    "change queues": 0.05,
    "change hours": 0.3,
    "pass hours": 0.1,
    "set clock in hours": 0.15,
    "submit to queue": 5.0,
    "submit": 0.5,
    "book": 2.0,
    "move booking": 0.7,
    "cancel booking": 0.3,
    "strike booking": 0.4,
    "submit for booking": 4.0,
    "pass bookings": 2.0,
    "restart": 0.3,
    "long": 0.1,
}
BOOKINGS: Final = _mix(_BOOKINGS, QUEUES)
#: Arrays, GPUs that idle, bookings, hours and pools in one world.
_TOGETHER: Final = {
    **_BOOKINGS,
    "change hours": 0.0,
    "change all": 0.8,
    "submit array": 1.5,
    "kill tasks": 0.5,
    "do": 5.0,
    "wake": 1.5,
    "keep": 0.3,
    "monitor dies": 0.3,
    "book": 2.5,
    "submit for booking": 3.0,
    "pass bookings": 1.5,
    "go on": 16.0,
}
TOGETHER: Final = _mix(_TOGETHER, QUEUES)
#: Queues that lend parts of their guarantees, limits above limits and of users, and shares that grow in them.
_LENDING: Final = {
    **_RECLAIMS,
    "change queues": 0.0,
    "change lending": 0.6,
    "submit to queue": 7.0,
    "submit in class": 2.0,
    "submit share": 3.0,
    "resize": 3.0,
    "go on": 16.0,
}
LENDING: Final = _mix(_LENDING, QUEUES)
#: Weights of acts, one of which is drawn for each episode.
MIXES = (
    WEIGHTS,
    WEIGHTS,
    APPS_ALONE,
    SHARES_ALONE,
    QUEUES,
    RECLAIMS,
    TERMS,
    SWITCHES,
    ARRAYS,
    IDLES,
    HOURS,
    BOOKINGS,
    TOGETHER,
    LENDING,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken invariant and its shortest story."""

    rule: str
    words: str
    shape: int  # seed of the cluster
    step: int  # number of the step in the run, from 0
    acts: tuple[Act, ...]  # fewest acts that break the rule in a new cluster of that seed
    story: tuple[str, ...]
    concerned: tuple[str, ...]  # jobs and tasks in the state of the scheduler


@dataclass(slots=True)
class Result:
    """The result of a run."""

    seed: int
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # events and calls of the engine, by name
    failure: Failure | None = None


def run(steps: int, seed: int, progress: Callable[[int], None] = lambda _: None) -> Result:
    """Execute random acts and check all rules; an equal seed gives an equal run.

    Args:
        steps: Number of acts.
        seed: Seed of the random numbers.
        progress: Function that gets the number of finished steps after each episode.
    """
    chance, result = random.Random(seed), Result(seed)
    while result.steps < steps and result.failure is None:
        shape = chance.getrandbits(32)
        count = min(chance.choice(EPISODES), steps - result.steps)
        acts = acts_of(chance, count, chance.choice(MIXES))
        world, done, violation = replay(shape, acts)
        result.counts += world.counts
        result.steps += done
        progress(result.steps)
        if violation is not None:
            result.failure = _failure(shape, acts[: done + 1], result.steps)
    return result


def acts_of(chance: random.Random, count: int, weights: Sequence[float] = WEIGHTS) -> list[Act]:
    """Draw random acts by weights."""
    names = chance.choices(_NAMES, weights, k=count)
    return [Act(name, chance.getrandbits(24), chance.getrandbits(24)) for name in names]


def replay(
    shape: int, acts: Sequence[Act], *, closely: bool = False, story: bool = False, quiet: bool = True
) -> tuple[World, int, Violation | None]:
    """Execute acts in a new cluster, followed by a quiet time if `quiet` is set.

    Args:
        shape: Seed of the cluster.
        acts: Acts in their order.
        closely: Whether to check the whole state after each batch.
        story: Whether to write a story.
        quiet: Whether a quiet time follows.

    Returns:
        The final world, the number of acts before a violation, and the violation or None.
    """
    world, done = World(shape, closely=closely, story=story), 0
    try:
        for act in acts:
            do(world, act)
            done += 1
        if quiet:
            world.flush()
            settle(world, stands=True)
            world.witness.inspect(world.state)
    except Violation as violation:
        return world, done, violation
    return world, done, None


def _failure(shape: int, acts: list[Act], step: int) -> Failure:
    """Find the shortest story of a failure; closer checks may find an earlier or another violation."""
    _, done, first = replay(shape, acts, closely=True)
    assert first is not None, "a replay fails, too"
    rule, quiet = first.rule, done == len(acts)  # whether it failed in the last quiet time

    def breaks(fewer: list[Act]) -> bool:
        violation = replay(shape, fewer, closely=True, quiet=quiet)[2]
        return violation is not None and violation.rule == rule

    exact = _pinned(shape, acts[: done + 1])
    acts = shrink(exact if breaks(exact) else acts[: done + 1], breaks)
    world, _, violation = replay(shape, acts, closely=True, story=True, quiet=quiet)
    assert violation is not None, "a replay fails, too"
    story = tuple(world.story or ())
    return Failure(rule, violation.words, shape, step, tuple(acts), story, _concerned(world, violation))


def _pinned(shape: int, acts: Sequence[Act]) -> list[Act]:
    """Return acts with the objects that they chose as targets."""
    world, exact = World(shape), list[Act]()
    for act in acts:
        with contextlib.suppress(Violation):
            do(world, act)
        exact += pinned(act, world.chosen)
    return exact


def shrink(acts: list[Act], breaks: Callable[[list[Act]], bool]) -> list[Act]:
    """Shorten and simplify a list of acts while it still fails, until nothing helps or it takes too many steps."""
    left, known = [_SHRINK_STEPS], dict[tuple[Act, ...], bool]()

    def tried(fewer: list[Act]) -> bool:
        key = tuple(fewer)
        if key not in known:
            left[0] -= len(fewer) + 20
            known[key] = left[0] > 0 and breaks(fewer)
        return known[key]

    before: list[Act] = []
    while acts != before:
        before = acts
        for shorten in (_fewer_subjects, _fewer, _plainer):
            acts = shorten(acts, tried)
        if acts == before:
            acts = _without_pairs(acts, tried)
    return acts


def _fewer(units: list[T], breaks: Callable[[list[T]], bool]) -> list[T]:
    """Leave out parts of a list, from halves down to single elements (delta debugging)."""
    size, shrunk = max(len(units) // 2, 1), True
    while size > 1 or shrunk:
        start, shrunk = 0, False
        while start < len(units):
            fewer = units[:start] + units[start + size :]
            if breaks(fewer):
                units, shrunk = fewer, True
            else:
                start += size
        size = max(size // 2, 1)
    return units


def _fewer_subjects(acts: list[Act], breaks: Callable[[list[Act]], bool]) -> list[Act]:
    """Leave out all acts on a job, a host or a GPU, or all acts of one kind without an object."""
    subjects = list(dict.fromkeys(_subject(act) for act in reversed(acts)))[::-1]

    def of(kept: list[str]) -> list[Act]:
        return [act for act in acts if _subject(act) in kept]

    return of(_fewer(subjects, lambda kept: breaks(of(kept))))


def _subject(act: Act) -> str:
    return act.target.split(" ")[0] if act.target else act.name


def _plainer(acts: list[Act], breaks: Callable[[list[Act]], bool]) -> list[Act]:
    """Replace numbers of acts by small ones, which choose equal objects when other acts are left out."""
    for i, act in enumerate(acts):
        for a, b in ((0, 1), (act.a, 1), (0, act.b)):
            plain = [*acts[:i], replace(act, a=a, b=b), *acts[i + 1 :]]
            if a + b < act.a + act.b and breaks(plain):
                acts = plain
                break
    return acts


def _without_pairs(acts: list[Act], breaks: Callable[[list[Act]], bool]) -> list[Act]:
    """Leave out pairs of acts, of which one is needed only because of the other."""
    i = 0
    while i < len(acts) <= _FEW:
        for j in range(i + 1, len(acts)):
            fewer = acts[:i] + acts[i + 1 : j] + acts[j + 1 :]
            if breaks(fewer):
                acts = fewer
                break
        else:
            i += 1
    return acts


def _short(noun: Job | Task | JobSpec) -> str:
    """Describe the fields of a noun that differ from the defaults."""
    said = []
    for each in fields(noun):
        value = getattr(noun, each.name)
        if value != (each.default_factory() if each.default_factory is not MISSING else each.default):
            value = _short(value) if isinstance(value, JobSpec) else getattr(value, "value", value)
            said.append(f"{each.name} {value}")
    return f"{type(noun).__name__}({', '.join(said)})"


def _concerned(world: World, violation: Violation) -> tuple[str, ...]:
    state, lines = world.state, []
    for name in dict.fromkeys((*violation.about, *re.findall(r"[\w.-]*\w", violation.words))):
        job_id = name if name in state.work.jobs else name.rpartition(".")[0]
        lines += [_short(job) for job in state.work.jobs.values() if job.id == job_id]
        lines += [_short(task) for task in state.work.tasks.values() if task.id == name]
        lines += [
            f"truly: {run.stage} on {run.agent.id}" for run in world.mesos.runs.values() if run.id == name
        ]
    return tuple(dict.fromkeys(lines))
