"""Events as they follow from what is saved: each change once, with numbers that only grow."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.saves import ForgetEvents, ForgetNode, KeepEvent, KeepJob, SaveDrain, SaveNode
from mesos_gpu.model.tasks.event import MAX_EVENTS, EventKind, LogEvent
from mesos_gpu.scheduler.happenings.follow import EventSource
from mesos_gpu.scheduler.happenings.log import SPARE, EventLog
from tests.doubles.builders import World, gpu, spec
from tests.doubles.memory_store import MemoryStore


class Followed(World):
    """A world whose effects are followed and saved."""

    def listen(self) -> None:
        self.disk = MemoryStore()
        self.log = EventLog()
        self.follower = EventSource(self.state, self.log)

    def feed(self, *events: ev.Event) -> list[object]:  # type: ignore[override]
        effects = super().feed(*events)
        self.disk.save(self.follower.follow(effects, self.state, self.now))
        self.follower.saved()
        return effects  # type: ignore[return-value]


@pytest.fixture
def world() -> Followed:
    world = Followed()
    world.listen()
    world.register()
    return world


def kinds(world: Followed, after: int = 0) -> list[tuple[str, str]]:
    """Kinds of events, and what each is of."""
    return [(e.kind.value, e.job_id or e.gpu or e.node or e.deployment) for e in world.log.after(after)]


def test_event_log_has_each_change_of_a_job_once(world: Followed) -> None:
    world.node("a1", gpu("g0"))
    assert kinds(world) == [("node", "a1.example")]
    world.submit(gpus=1, labels={"team": "x"})
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_FAILED", message="exit status 3")
    assert kinds(world)[1:] == [("submitted", "j1"), ("started", "j1"), ("failed", "j1")]
    last = world.log.after(0)[-1]
    assert (last.exit_code, last.message) == (
        world.state.work.jobs[JobId("j1")].exit_code,
        world.state.work.jobs[JobId("j1")].message,
    )
    (kept,) = world.disk.past.values()
    assert (kept.id, kept.state, kept.hosts, kept.gpu_milli) == ("j1", JobState.FAILED, ("a1.example",), 1000)
    assert (kept.labels, kept.attempts) == ({"team": "x"}, 1)
    assert world.disk.events() == list(world.log.after(0))


def test_event_log_has_changes_of_cards_and_drains(world: Followed) -> None:
    world.node("a1", gpu("g0"))
    before = world.log.last
    world.report("a1", replace(gpu("g0"), health=Health.SICK, reason="XID 79"))
    world.report("a1", replace(gpu("g0"), health=Health.SICK, reason="XID 79"))
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "fan"))
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan"))
    world.feed(ev.UndrainRequested(Target.GPU, "g0"))
    told = world.log.after(before)
    assert [(event.kind.value, event.gpu, event.node, event.state) for event in told] == [
        ("gpu", "g0", "a1.example", "sick"),
        ("drained", "", "a1.example", ""),
        ("drained", "g0", "", ""),
        ("undrained", "g0", "", ""),
    ]
    assert told[0].message == "GPU g0 on a1.example: ok -> sick: XID 79"


def test_event_log_numbers_grow_over_a_restart_with_an_earlier_clock(world: Followed) -> None:
    world.submit(gpus=1)
    last = world.log.last
    world.now -= 3600.0
    again = EventLog(world.disk.events())
    world.log, world.follower = again, EventSource(world.state, again)
    world.feed(ev.KillRequested(JobId("j1")))
    assert kinds(world, last) == [("killed", "j1")]
    assert kinds(world)[0] == ("submitted", "j1")


def test_event_log_omits_the_state_at_the_start(world: Followed) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan"))
    later = EventLog()
    follower = EventSource(world.state, later)
    drain = next(iter(world.state.cluster.drains.values()))
    assert follower.follow([], world.state, world.now) == []
    assert follower.follow([SaveDrain(drain)], world.state, world.now) == []


def test_event_log_is_bounded_in_memory_and_on_disk() -> None:
    world = Followed()
    world.listen()
    number = MAX_EVENTS + SPARE
    world.log.add([LogEvent(n, 1.0, EventKind.NODE) for n in range(1, number + 1)])
    world.follower = EventSource(world.state, world.log)
    saves = world.follower.follow([], world.state, world.now)
    assert saves == [ForgetEvents(SPARE)]
    world.register()
    world.node("a1", gpu("g0"))
    assert world.log.first == SPARE + 1
    assert len(world.log.after(0, number)) == MAX_EVENTS + 1


def test_event_log_shows_no_event_before_it_is_saved(world: Followed) -> None:
    before = world.log.last
    effects = World.feed(world, ev.JobSubmitted(JobId("x"), spec(), ""))
    saves = world.follower.follow(effects, world.state, world.now)
    assert [type(save) for save in saves] == [KeepEvent]
    assert world.log.last == before
    world.follower.saved()
    assert kinds(world, before) == [("submitted", "x")]
    assert not [save for save in saves if isinstance(save, KeepJob)]


def test_event_log_wakes_waiters_or_times_out() -> None:
    log = EventLog()
    assert not log.wait(0, 0.0)
    log.add([LogEvent(5, 1.0, EventKind.NODE, node="a", gpu=GpuId(""))])
    assert log.wait(4, 0.0)
    assert not log.wait(5, 0.0)


def test_event_log_forgets_cards_of_a_forgotten_node(world: Followed) -> None:
    world.node("a1", gpu("g0", health=Health.SICK), gpu("g1"))
    world.node("a2", gpu("g2"))
    moved = replace(
        world.state.cluster.nodes[AgentId("a2")], inventory=Inventory((gpu("g1"), gpu("g2")), "nvml", "1")
    )
    follow = world.follower.follow
    follow([SaveNode(moved)], world.state, world.now)
    assert follow([ForgetNode(AgentId("a1"))], world.state, world.now) == []
    assert sorted(world.follower._cards) == ["g1", "g2"], "one that another node has by now stays"
