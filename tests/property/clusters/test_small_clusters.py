"""Small clusters, compared with all placements: what fits starts, also what fits after the end of other jobs.

`why` says of nothing else that it fits now.
"""

import os
import random
from typing import Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.step import step
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import Limits
from tests.doubles.builders import spec
from tests.property.clusters.drawn import KINDS, Drawn, Racks, Terms, Work, drawn, fields_of, world_of
from tests.property.clusters.oracle import oracle_of

GATE: Final = 16  # clusters of a kind in `make test`
ALL: Final = int(os.environ.get("MESOS_GPU_TEST_CLUSTERS", "200000"))  # clusters of all kinds in long runs
PIECES: Final = 20  # tests of a kind in long runs
NOTICE_S: Final = 12  # until the others have ended: three seconds before their notice, and the grace
OPENED_S: Final = 3  # until a GPU is opened for shares
UNIQUE: Final = Constraint("hostname", Operator.UNIQUE)


def pieces() -> list[object]:
    """Return the seeds of each test: few in `make test`, and all of them in pieces in long runs."""
    size = ALL // len(KINDS) // PIECES
    long = (range(GATE + n * size, GATE + (n + 1) * size) for n in range(PIECES))
    marks = pytest.mark.long, pytest.mark.timeout(7200)
    return [range(GATE), *(pytest.param(each, marks=marks, id=f"from {each.start}") for each in long)]


def says_it_fits(world: Racks) -> bool:
    """Return whether `why` says of the job that it fits now."""
    why = explain_job(View(world.state, world.settings, world.now), JobId("job"))
    return "it fits now" in why.summary


def has_started(world: Racks) -> bool:
    return world.job("job").state is not JobState.PENDING


def is_refused(world: Racks, made: Drawn) -> bool:
    """Hand the job in without a match; return whether it is refused."""
    request = spec(**fields_of(made.job))
    try:
        step(world.state, ev.JobSubmitted(JobId("job"), request), world.now, world.settings)
    except NotAccepted:
        return True
    return False


def check(made: Drawn) -> tuple[bool, bool]:
    """Compare the engine with the oracle; return whether the job started, at once or after the end of others."""
    world = world_of(made)
    oracle = oracle_of(made, world)
    if made.first is not None:
        world.submit("first", **fields_of(made.first))
        assert world.job("first").state is JobState.PENDING
    fits = oracle.fits(())
    fits_later = oracle.may_start and oracle.fits(oracle.victims)
    if is_refused(world, made):
        assert not fits_later, "it is refused, and would fit"
        return False, False
    said = says_it_fits(world)
    step(world.state, ev.Match(), world.now, world.settings)
    assert has_started(world) or not said, "`why` says that it fits now, and the next match does not start it"
    for _ in range(OPENED_S if made.job.milli < WHOLE else 0):
        if not has_started(world):
            world.passes(1.0)
    at_once = has_started(world)
    assert fits or not at_once, "it starts, and does not fit"
    assert at_once or not (fits and oracle.may_start), "it fits, and does not start"
    changed = True  # what `why` sees
    for _ in range(NOTICE_S if not at_once and made.first is None else 0):
        said = changed and says_it_fits(world)
        world.passes(1.0)
        if has_started(world):
            return False, True
        assert not said, "`why` says that it fits now, and the next match does not start it"
        changed = bool(world.obeys())
        world.starts()
    assert at_once or made.first is not None or not fits_later, (
        "it fits after the end of others, and does not start"
    )
    stopped = {str(task.job_id) for task in world.state.work.tasks.values() if task.preempted_for == "job"}
    assert at_once or made.first is not None or not stopped, f"{stopped} are stopped in vain"
    return at_once, False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", pieces())
def test_job_starts_in_a_small_cluster_exactly_if_it_fits(seeds: range, kind: str) -> None:
    started = later = 0
    for seed in seeds:
        made = drawn(random.Random(f"{kind} {seed}"), kind)
        try:
            at_once, after = check(made)
        except AssertionError as error:
            raise AssertionError(f"{kind}, seed {seed}: {error}; {made}") from error
        started += at_once
        later += after
    assert started >= len(seeds) // 12
    assert later >= len(seeds) // 100 or kind == "behind"


#: Clusters in which a job once waited for ever: it starts after the end of others.
FOUND: Final = {
    "idle card beside a limit that jobs behind it wait for": Drawn(
        ("r1", "r0", "r1", "r0", "r0"), (4, 1, 3, 1, 5),
        (
            (Work("j0", "small", gpus=2, preemptible=False), 0),
            (Work("j1", "small", milli=500, priority=2, user="bob"), 0),
            (Work("j2", "default", priority=1), 0),
            (Work("j3", "small", milli=500, priority=2, preemptible=False), 1),
            (Work("j4", "small"), 2),
            (Work("j5", "default", user="bob"), 2),
            (Work("j6", "small", priority=2), 2),
            (Work("j7", "default", milli=250, user="bob"), 3),
            (Work("j8", "default", milli=500), 4),
            (Work("j9", "default", gpus=3, priority=1), 4),
        ),
        Work("job", "small", gpus=2, tasks=2, priority=3, user="bob"),
        names={"small": 8},
    ),
    "share of a victim beside a limit": Drawn(
        ("r0",), (3,),
        ((Work("j0", "small", milli=250), 0), (Work("j1", "small", gpus=2), 0)),
        Work("job", "small", gpus=3, priority=1),
        names={"small": 4},
    ),
    "gang whose tasks are compared, and an idle card": Drawn(
        ("r0", "r0"), (2, 1),
        ((Work("j0", "default", milli=250), 1),),
        Work("job", "default", tasks=2, priority=1, constraints=(UNIQUE,)),
    ),
    "lower priority beside GPUs that are not lent": Drawn(
        ("r0",), (2,),
        ((Work("j0", "rest"), 0),),
        Work("job", "rest", priority=1),
        terms={"team": Terms(1), "team/a": Terms(1, lends=0), "team/b": Terms(), "rest": Terms()},
    ),
    "lower priority at the limit of a user": Drawn(
        ("r0",), (2,),
        ((Work("j0", "rest"), 0),),
        Work("job", "rest", priority=1),
        terms={"rest": Terms()}, users={"ann": Limits(max_running=1)},
    ),
    "lower priority at the limit of one pool, and another pool without a limit is full": Drawn(
        ("r0", "r1"), (1, 1),
        ((Work("j0", "rest"), 0), (Work("j1", "rest", preemptible=False), 1)),
        Work("job", "rest", priority=1),
        terms={"rest": Terms()}, pools={"rest": {"r0": 1}},
    ),
    "gang over a pool at its limit and a pool without a limit": Drawn(
        ("r0", "r1"), (2, 1),
        ((Work("j0", "rest", gpus=2), 0),),
        Work("job", "rest", tasks=2, priority=1, constraints=(UNIQUE,)),
        terms={"rest": Terms()}, pools={"rest": {"r0": 2}},
    ),
    "gang over two pools at their limits": Drawn(
        ("r0", "r1"), (2, 2),
        ((Work("j0", "rest", gpus=2), 0), (Work("j1", "rest", gpus=1), 1)),
        Work("job", "rest", tasks=2, priority=1, constraints=(UNIQUE,)),
        terms={"rest": Terms()}, pools={"rest": {"r0": 2, "r1": 2}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("made", FOUND.values(), ids=FOUND)
def test_job_starts_after_the_end_of_others_where_it_once_waited(made: Drawn) -> None:
    assert check(made) == (False, True)
