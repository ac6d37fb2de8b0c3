"""A booking under the next leader: the state that several schedulers share has its nodes, notices, use and end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.replicated.log import NotLeader
from mesos_gpu.adapters.replicated.place import parsed
from mesos_gpu.adapters.replicated.store import ReplicatedStore
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.bookings.booking import BookingState, Charge
from mesos_gpu.model.saves import KeepRecord, Save
from tests.contract.test_replicated import Scheduler
from tests.doubles.builders import World, every
from tests.unit.engine.bookings.worlds import Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}


class Led(Booked):
    """An engine whose saves are written before anything else is done."""

    store: ReplicatedStore

    def feed(self, *events: ev.Event) -> list[fx.Effect]:
        """Step the events, and write what is to be saved."""
        effects = super().feed(*events)
        if saves := [effect for effect in effects if isinstance(effect, Save)]:
            self.store.save(saves)
        return effects

    def taken_over(self, store: ReplicatedStore) -> "Led":
        """The engine of the next leader, an instant later; it knows what was written, and nothing else."""
        again = led(store, State.restored(self.now, store.load()), self)
        again.register()
        return again


def led(store: ReplicatedStore, state: State, like: Booked) -> Led:
    made = Led.__new__(Led)
    made.store = store
    World.__init__(made, like.settings, like.now, state, like.serial)
    made.size = dict(like.size)
    return made


@pytest.fixture
def leaders(meeting: str, tmp_path: Path) -> Iterator[Iterator[ReplicatedStore]]:
    """Stores of schedulers, each of which takes the place of whoever led before it."""
    made: list[Scheduler] = []

    def following() -> Iterator[ReplicatedStore]:
        while True:
            made.append(Scheduler(parsed(meeting), tmp_path / f"s{len(made)}.sqlite"))
            yield made[-1].lead()

    yield following()
    for each in made:
        each.close()


def test_booking_is_the_same_under_each_leader(
    leaders: Iterator[ReplicatedStore],
) -> None:
    first = led(next(leaders), State(started_at=Booked().now), Booked())
    first.register()
    for name in ("n1", "n2"):
        first.up(name, 4)
    booked = first.book(charge=Charge.IDLE)
    first.run("old", gpus=4, **STOPPABLE)
    first.go(1800)
    first.run("young", gpus=4, **STOPPABLE)
    first.run("named", queue="exam", booking="exam", gpus=3, notice_s=60.0, kill_grace_s=10.0)
    first.go(1800 - 65)
    assert first.booking().state is BookingState.PREPARING
    (told,) = first.state.work.round_of(first.job("young"))
    assert told.notice is not None

    second = first.taken_over(next(leaders))
    chosen = second.booking()
    assert chosen == first.booking()
    assert second.state.work.round_of(second.job("young")) == [told]
    with pytest.raises(NotLeader):
        first.feed(ev.BookingCancelled("exam"))
    second.go(told.notice.until - second.now - 1)
    assert second.on("young"), "it has all of its notice"
    second.go(2)
    assert not second.on("young")
    second.go(booked.begins - second.now + 2)
    second.started()
    assert second.on("named") < set(second.booking().gpus)
    assert second.booking().places == chosen.places
    second.go(600)

    third = second.taken_over(next(leaders))
    assert third.booking() == second.booking()
    assert not third.runs(third.run("endless", gpus=4).id), "its GPUs are for nobody else"
    third.go(booked.ends - third.now - 65)
    (told,) = third.state.work.round_of(third.job("named"))
    assert told.notice is not None
    assert told.notice.until == booked.ends - 10

    last = third.taken_over(next(leaders))
    effects = last.go(70)
    assert last.booking().state is BookingState.OVER
    (record,) = [each.record for each in every(effects, KeepRecord) if not each.record.span.job_id]
    (part,) = record.span.parts
    lasted_s = booked.ends - booked.begins
    assert part.gpu_milli * lasted_s == pytest.approx(1000 * lasted_s, rel=0.05), "one of four was not used"
