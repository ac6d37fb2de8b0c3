"""Readers of queues: what a queue is due and lends, why its jobs wait, and the lists of those that wait."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.explain.shares import path_share, queue_shares
from mesos_gpu.engine.indexes.memory import SecretRead
from mesos_gpu.engine.queue.forecast import BACK_OFF, ROOM, SECRETS, UNASKED, Forecast
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.queue import QueueUse
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.queue_share import PathShare
from mesos_gpu.model.queue_why import QueueWhy, WaitGroup
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.tenancy import JobClass, QueueSpec, Stop
from tests.doubles.builders import World, gpu, spec
from tests.unit.engine.tenancy.lending import Tenants, queue
from tests.unit.engine.tenancy.worlds import most, tree_world

SECRETS_OF: Final = (Secret("A", "team/a"),)


@pytest.fixture
def world() -> Tenants:
    """Four GPUs, of which lab is guaranteed three and ops one."""
    made = Tenants()
    made.register()
    made.agents(1, 4)
    made.document(lab=queue(3), lab__x=queue(2), lab__y=queue(), ops=queue(1))
    return made


def asked(world: World) -> Any:
    return world.state, world.settings, world.now


def path_share_of(world: World, path: str) -> PathShare:
    return path_share(world.state, world.settings, path, world.now)


def why_of_queue(world: World, path: str) -> QueueWhy:
    return queue_why(world.state, world.settings, path, world.now)


# --- shares


@pytest.mark.parametrize(
    ("held", "lent"),
    [
        ({}, {"lab": 0, "lab/x": 0, "lab/y": 0, "ops": 0}),
        ({"ops": 1}, {"lab": 0, "lab/x": 0, "lab/y": 0, "ops": 0}),
        ({"ops": 2}, {"lab": 1, "lab/x": 0, "lab/y": 0, "ops": 0}),
        ({"ops": 4}, {"lab": 3, "lab/x": 0, "lab/y": 0, "ops": 0}),
        ({"lab/y": 1}, {"lab": 0, "lab/x": 0, "lab/y": 0, "ops": 0}),  # that of lab's is no child's
        ({"lab/y": 2}, {"lab": 0, "lab/x": 1, "lab/y": 0, "ops": 0}),
        ({"lab/y": 3}, {"lab": 0, "lab/x": 2, "lab/y": 0, "ops": 0}),
        ({"lab/y": 4}, {"lab": 0, "lab/x": 2, "lab/y": 0, "ops": 1}),
        ({"lab/y": 2, "ops": 2}, {"lab": 1, "lab/x": 1, "lab/y": 0, "ops": 0}),
    ],
)
def test_queue_lends_what_others_hold_of_its_guarantee(
    world: Tenants, held: dict[str, int], lent: dict[str, int]
) -> None:
    for path, gpus in held.items():
        world.runs(f"r-{path.replace('/', '-')}", path, gpus)
    shares = {each.path: each for each in queue_shares(*asked(world))}
    assert list(shares) == ["default", "lab", "lab/x", "lab/y", "ops"]
    assert shares.pop("default").lent == 0
    assert {path: share.lent for path, share in shares.items()} == {
        path: n * 1000 for path, n in lent.items()
    }
    for path, share in shares.items():
        below = sum(gpus for each, gpus in held.items() if f"{each}/".startswith(f"{path}/"))
        assert (share.pool, share.held) == ("default", below * 1000)


def test_shares_of_a_queue_are_those_of_all_above_it(world: Tenants) -> None:
    world.submit("w", queue="lab/x", gpus=9, preemptible=True)
    shares = {each.path: each for each in queue_shares(*asked(world))}
    told = path_share_of(world, "lab/x")
    assert (told.path, told.steps) == ("lab/x", (shares["lab"], shares["lab/x"]))
    assert path_share_of(world, "lab").users == ()
    assert [shares[path].pending for path in ("lab", "lab/x", "lab/y", "ops")] == [9000, 9000, 0, 0]
    assert {shares[path].weights for path in ("lab", "ops")} == {3}
    for path in ("none", "lab/none"):
        with pytest.raises(NotFound, match=f"there is no queue {path}"):
            path_share_of(world, path)
    bare = World()
    assert queue_shares(*asked(bare)) == ()
    with pytest.raises(NotFound):
        path_share_of(bare, "lab")


def test_users_of_a_leaf_are_those_who_have_used_it_or_wait(world: Tenants) -> None:
    world.document(ops=QueueSpec(user_shares={"ann": 3, "*": 1}), lab=queue(), lab__x=queue())
    world.runs("a", "ops", 2, user="ann")
    world.runs("b", "ops", 1, user="bob")
    world.passes(60)
    world.submit("c", queue="ops", gpus=9, user="cem", preemptible=True)
    world.submit("d", queue="lab/x", gpus=9, user="dan", preemptible=True)
    users = path_share_of(world, "ops").users
    assert [(each.user, each.shares, each.held, each.rank) for each in users] == [
        ("ann", 3, 2000, 0),
        ("cem", 1, 0, 0),
        ("bob", 1, 1000, 1),
    ]
    assert users[0].use > users[2].use > users[1].use > 0
    world.ends("b")
    world.submit("e", queue="ops", gpus=9, user="bob", preemptible=True)
    assert [each.user for each in path_share_of(world, "ops").users] == ["ann", "cem", "bob"]


# --- why a queue's jobs wait


def test_jobs_of_a_queue_are_grouped_by_what_they_wait_for(world: Tenants) -> None:
    world.settings = world.settings.changed(secrets=True)
    world.document(lab=queue(), lab__x=QueueSpec(limit_gpus=most(2)), lab__y=queue(), ops=queue(1))
    world.runs("holds", "lab/x", 2)
    world.submit("limit", queue="lab/x", gpus=1, preemptible=True)
    world.submit("secret", queue="lab/y", gpus=1, secrets=SECRETS_OF, preemptible=True)
    world.state.work.secrets["team/a"] = SecretRead(asked_at=world.now)
    world.submit("large", queue="lab/y", gpus=3, tasks=2, preemptible=True)
    world.submit("alike", queue="lab/y", gpus=3, tasks=2, preemptible=True)
    world.submit("later", queue="lab/y", gpus=9, preemptible=True)
    world.state.put(replace(world.job("later"), not_before=world.now + 90.4, message="it failed"))
    world.submit("other", queue="ops", gpus=9, preemptible=True)
    told = why_of_queue(world, "lab")
    groups = {each.reason: each for each in told.waits}
    assert groups["queue-limit"] == WaitGroup(
        "queue-limit", 1, 1000, JobId("limit"), "queue lab/x may hold 2 GPUs, and holds 2"
    )
    assert groups["secrets"] == WaitGroup("secrets", 1, 1000, JobId("secret"), "secret team/a is being read")
    assert groups["gpus"] == WaitGroup("gpus", 2, 12000, JobId("large"), "")
    assert groups["retry"] == WaitGroup(
        "retry", 1, 9000, JobId("later"), "waits 90 s before its next launch: it failed"
    )
    assert told.summary == "5 jobs wait for 23 GPUs"
    assert told.first is not None
    assert told.first.job_id == told.waits[0].first
    assert [(each.share.path, each.seated) for each in told.pools] == [("lab", 0)]
    ops = why_of_queue(world, "ops")
    assert ops.summary == "1 job waits for 9 GPUs"


def test_queue_of_which_nothing_waits_is_told_with_what_it_holds(world: Tenants) -> None:
    world.runs("a", "lab/x", 2, preemptible=False)
    world.runs("b", "lab/x", 1)
    world.runs("c", "ops", 1)
    told = why_of_queue(world, "lab")
    assert told.summary == "no job waits; 3 GPUs allocated"
    assert (told.waits, told.first) == ((), None)
    assert [each.seated for each in told.pools] == [3000]
    inner = why_of_queue(world, "lab/x")
    assert [(each.share.path, each.seated) for each in inner.pools] == [("lab/x", 3000)]
    world.document(lab=QueueSpec(stop=Stop.HOLD), lab__x=queue(), lab__y=queue(), ops=queue())
    held = why_of_queue(world, "lab/x")
    assert held.summary == "no job waits; 3 GPUs allocated, and no job starts: queue lab is on hold"
    world.submit("w", queue="lab/x", gpus=1, preemptible=True)
    assert why_of_queue(world, "lab/x").summary == "1 job waits for 1 GPU: queue lab is on hold"


def test_tasks_of_an_array_count_with_the_first_that_waits(world: Tenants) -> None:
    world.feed(
        ev.JobSubmitted(
            JobId("many-1"), spec(name="many", queue="ops", gpus=9, array="0-4", preemptible=True)
        )
    )
    world.submit("more", queue="ops", gpus=9, preemptible=True)
    told = why_of_queue(world, "ops")
    assert told.summary == "6 jobs wait for 54 GPUs"
    forecast = Forecast(*asked(world))
    first, second = forecast.jobs
    assert [forecast.stands_for(job.id) for job in (first, second)] == [5, 1]
    assert [forecast.place_of(job.id) for job in (first, second)] == [0, 5]
    assert forecast.place_of(JobId("none")) is None
    assert [each.position for each in forecast.waiting(9)] == [0, 5]
    assert Forecast(*asked(world)).reasons(1) == Counter({ROOM: 1, UNASKED: 1 + 4})
    assert Forecast(*asked(world)).reasons(9) == Counter({ROOM: 2, UNASKED: 4})


# --- the queue


@pytest.fixture
def bare() -> World:
    """Queues are names, and one has a limit."""
    made = World(Settings.of("e", "m", queue_limits={"lab": 2, "none": 1}, secrets=True))
    made.register()
    made.node("a1", *(gpu(f"g{i}") for i in range(4)), cpus=64)
    return made


def test_waiting_jobs_are_told_apart_by_what_they_wait_for(bare: World) -> None:
    bare.submit("holds", queue="lab", gpus=2)
    bare.submit("limit", queue="lab", gpus=1)
    bare.submit("secret", secrets=SECRETS_OF)
    bare.state.work.secrets["team/a"] = SecretRead(asked_at=bare.now)
    bare.submit("large", gpus=9)
    bare.submit("later", gpus=9)
    bare.state.put(replace(bare.job("later"), not_before=bare.now + 0.5))
    bare.submit("due", gpus=9)
    bare.state.put(replace(bare.job("due"), not_before=bare.now))
    reasons = Forecast(*asked(bare)).reasons(9)
    assert reasons == Counter({Stage.QUEUE_LIMIT.value: 1, SECRETS: 1, ROOM: 2, BACK_OFF: 1, UNASKED: 0})
    assert reasons.keys() >= {UNASKED}
    assert Forecast(*asked(bare)).reasons(2) == Counter({Stage.QUEUE_LIMIT.value: 1, SECRETS: 1, UNASKED: 3})


def test_first_jobs_that_somebody_sees_are_listed(bare: World) -> None:
    bare.state.mesos.suppressed = False
    for i in range(4):
        bare.submit(f"j{i}", gpus=9, priority=i % 2)
        bare.now += 1
    forecast = Forecast(*asked(bare))
    assert [job.id for job in forecast.jobs] == ["j1", "j3", "j0", "j2"]
    seen = forecast.waiting(2, lambda job: job.id != "j3")
    assert [(each.job.id, each.position, each.effective_priority) for each in seen] == [
        ("j1", 0, 1),
        ("j0", 2, 0),
    ]
    assert Forecast(*asked(bare)).waiting(9, lambda _: False) == []
    bare.settings = bare.settings.changed(aging_step_s=2.0)
    aged = Forecast(*asked(bare)).waiting(9)
    assert [(each.job.id, each.effective_priority) for each in aged] == [
        ("j0", 2),
        ("j1", 2),
        ("j2", 1),
        ("j3", 1),
    ]
    until = Forecast(*asked(bare), until=JobId("j1"))
    assert [job.id for job in until.jobs] == ["j0", "j1"]


def test_queues_are_listed_with_what_they_hold_and_who_waits_longest(bare: World) -> None:
    bare.submit("holds", queue="lab", gpus=2)
    bare.now += 5
    bare.submit("first", queue="lab", gpus=1)
    bare.now += 5
    bare.submit("second", queue="lab", gpus=1)
    bare.feed(ev.JobSubmitted(JobId("many-1"), spec(name="many", queue="ops", gpus=9, array="0-4")))
    assert Forecast(*asked(bare)).queues() == [
        QueueUse("lab", 2, 2.0, 2, 1005.0),
        QueueUse("none", 1, 0.0, 0, None),
        QueueUse("ops", None, 0.0, 5, 1010.0),
    ]


def test_class_that_is_no_seat_counts_nothing_as_seated() -> None:
    world = tree_world({"dev": QueueSpec()}, classes=(JobClass("night"),))
    assert path_share_of(world, "dev").steps == ()
    assert why_of_queue(world, "dev").summary == "no job waits; 0 GPUs allocated"
