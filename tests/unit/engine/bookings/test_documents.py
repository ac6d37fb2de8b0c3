"""Documents of queues beside bookings: what is booked is kept, or the document is refused."""

from collections.abc import Callable

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.queues import check_queues
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import Conflict
from mesos_gpu.model.bookings.booking import BookingState
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.tenancy import Guarantee, Hours, Pool, QueueDocument, QueueSpec
from mesos_gpu.policy.tenancy.checks import Findings
from tests.unit.engine.bookings.worlds import Booked

FOUR = {"default": Guarantee(4000)}
CROWDED = (
    "it leaves too little for bookings: at Tue 2026-11-24 13:00, bookings exam: 0 GPUs are not guaranteed, "
    "and 4 would be booked: queue ops is guaranteed 4: guarantee less, or cancel bookings (mesos-gpu reserve cancel)"
)
OPS = QueueSpec(guarantee_gpus=FOUR)


@pytest.fixture
def booked() -> Booked:
    """A node of four GPUs, which queue exam has booked from one to two o'clock; it is noon."""
    world = Booked()
    world.up("n1", 4)
    world.feed(ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec(), "ops": QueueSpec()}), 0))
    world.book()
    return world


def found(world: Booked, document: QueueDocument) -> Findings:
    return check_queues(View(world.state, world.settings, world.now), document)


def applied(world: Booked, document: QueueDocument) -> None:
    world.feed(ev.QueuesChanged(document, 1))


@pytest.mark.parametrize("way", [found, applied])
def test_queue_document_without_the_queue_of_a_booking_is_refused(
    booked: Booked, way: Callable[[Booked, QueueDocument], object]
) -> None:
    document = QueueDocument(queues={"ops": QueueSpec()})
    said = r"these bookings could not be used: exam \(there is no queue exam\)"
    with pytest.raises(Conflict, match=said) as refused:
        way(booked, document)
    assert "cancel the bookings first (mesos-gpu reserve cancel)" in refused.value.remedy
    assert booked.state.quota.queues.version == 1
    booked.feed(ev.BookingCancelled("exam"))
    booked.feed(ev.QueuesChanged(document, 1))
    assert booked.state.quota.queues.version == 2


def test_queue_document_that_closes_the_pool_of_a_booking_is_refused(booked: Booked) -> None:
    pools = (Pool("fast", attributes={"kind": "fast"}, dedicated=True),)
    queues = {"exam": QueueSpec(pools=("fast",))}
    with pytest.raises(Conflict, match=r"exam \(queue exam may not use pool default: it uses fast\)"):
        found(booked, QueueDocument(queues=queues, pools=pools))


def test_queue_document_without_the_guarantee_of_a_booking_is_refused(booked: Booked) -> None:
    booked.feed(ev.BookingCancelled("exam"))
    booked.feed(ev.QueuesChanged(QueueDocument(queues={"ops": OPS}), 1))
    booked.book("night", queue="ops", from_guarantee=True)
    with pytest.raises(Conflict, match=r"night \(queue ops is guaranteed nothing of pool default\)"):
        found(booked, QueueDocument(queues={"ops": QueueSpec()}))


def test_guarantees_beyond_what_bookings_leave_are_a_fault(booked: Booked) -> None:
    ((path, why),) = found(booked, QueueDocument(queues={"exam": QueueSpec(), "ops": OPS})).faults
    assert (path, why) == ("/queues", CROWDED)
    scaled = QueueDocument(queues={"exam": QueueSpec(), "ops": OPS}, overbook=True)
    assert [each.partition(":")[0] for each in found(booked, scaled).warnings] == [
        "it leaves too little for bookings"
    ]


def test_guarantees_at_other_hours_than_those_of_bookings_are_none(booked: Booked) -> None:
    by_night = QueueSpec(hours=(Hours("22:00", "06:00", guarantee_gpus=FOUR),))
    assert found(booked, QueueDocument(queues={"exam": QueueSpec(), "ops": by_night})) == Findings()
    by_day = QueueSpec(hours=(Hours("08:00", "18:00", guarantee_gpus=FOUR),))
    assert found(booked, QueueDocument(queues={"exam": QueueSpec(), "ops": by_day})).faults


def test_nodes_that_a_document_puts_into_another_pool_are_lacking(booked: Booked) -> None:
    pools = (Pool("fast", models=("A100",)),)
    queues = {"exam": QueueSpec(pools=("fast", "default"))}
    ((_, why),) = found(booked, QueueDocument(queues=queues, pools=pools)).faults
    assert "0 GPUs are not guaranteed, and 4 would be booked: guarantee less" in why


def test_queue_document_is_not_blamed_for_a_booking_that_fits_in_none(booked: Booked) -> None:
    booked.feed(ev.AgentLost(AgentId("n1")))
    document = QueueDocument(queues={"exam": QueueSpec(), "ops": QueueSpec(), "more": QueueSpec()})
    assert not found(booked, document).faults
    booked.feed(ev.QueuesChanged(document, 1))
    assert booked.booking().state is BookingState.BOOKED
