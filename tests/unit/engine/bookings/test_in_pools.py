"""Bookings where a queue may not use every pool, or has a limit in one."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.tenancy import Guarantee, Pool, QueueDocument, QueueSpec
from tests.unit.engine.bookings.worlds import HOUR, Booked

OLD = Pool("old", ("T4",))


def world(exam: QueueSpec) -> Booked:
    """A node of four A100, in the pool default, and one of four T4, in the pool old; it is noon."""
    made = Booked()
    made.up("new", 4)
    made.up("old", 4, "T4")
    made.feed(ev.QueuesChanged(QueueDocument(queues={"exam": exam}, pools=(OLD,)), 0))
    return made


def test_booking_in_a_pool_that_its_queue_may_not_use_is_refused() -> None:
    made = world(QueueSpec(pools=("old",)))
    with pytest.raises(NotAccepted, match=r"queue exam may not use pool default: it uses old"):
        made.book()
    assert made.book(pool="old").begins == made.now + HOUR


def test_booking_made_before_its_queue_lost_the_pool_takes_no_job() -> None:
    made = world(QueueSpec())
    made.book()
    now = QueueDocument(2, queues={"exam": QueueSpec(pools=("old",))}, pools=(OLD,))
    made.state.put(now)  # as one that was taken before bookings were asked about
    made.go(HOUR + 5)
    assert made.booking().is_active
    assert not made.runs(made.run("named", queue="exam", booking="exam").id)
    made.run("other", queue="exam")
    assert made.on("other") <= {f"old-{i}" for i in range(4)}


def test_limit_of_a_pool_holds_on_what_is_booked_there() -> None:
    made = world(QueueSpec(limit_gpus={"default": 2000}))
    made.book()
    made.go(HOUR + 5)
    for name in ("a", "b", "c"):
        made.run(name, queue="exam", booking="exam")
    assert [made.runs(name) for name in ("a", "b", "c")] == [True, True, False]


def test_booking_in_a_later_pool_of_an_order_is_used_at_once() -> None:
    made = world(QueueSpec(pools=("old", "default"), overflow_after_s=3600.0))
    made.book()
    made.go(HOUR + 5)
    assert made.runs(made.run("named", queue="exam", booking="exam").id)


def test_limit_of_a_queue_holds_on_a_booking_for_jobs_without_a_seat() -> None:
    made = world(QueueSpec(limit_gpus={"default": 1000}, guarantee_gpus={}))
    made.feed(ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec(limit_gpus={"default": 1000})}), 1))
    made.book()
    made.go(HOUR + 5)
    for name in ("a", "b"):
        made.run(name, queue="exam", booking="exam", preemptible=False)
    assert [made.runs(name) for name in ("a", "b")] == [True, False]


def test_booking_of_all_that_a_queue_is_guaranteed_leaves_its_other_jobs_to_borrow() -> None:
    """With jobs that wait, and one that has a seat."""
    guaranteed = QueueSpec(guarantee_gpus={"default": Guarantee(2000)})
    made = world(guaranteed)
    made.run("seated", queue="exam")
    made.book(gpus=2, from_guarantee=True)
    made.submit("waits", queue="exam", gpus=2, cpus=0.1)
    made.go(HOUR + 5)
    assert made.booking().is_active
    made.run("borrows", queue="exam", preemptible=True)
    assert made.job("borrows").seat is None


def test_booking_of_a_model_that_its_pool_lacks_is_refused_as_with_jobs() -> None:
    made = world(QueueSpec())
    made.up("more", 4, "NVIDIA A100-SXM4-80GB")
    with pytest.raises(NotAccepted) as refused:
        made.book(models=("H100", "T4"))
    said = "no node of pool default has a GPU of model H100 or T4; there are A100, NVIDIA A100-SXM4-80GB"
    assert refused.value.faults == (("/gpu_model", said),)
    made.submit("job", gpus=1, gpu_model=("H100",))
    said = why_of(made.state, made.settings, made.now, made.job("job")).summary
    assert said.endswith("no node has a GPU of model H100; there are A100, NVIDIA A100-SXM4-80GB, T4")


def test_booking_whose_node_changed_pool_keeps_jobs_out_of_its_way() -> None:
    made, queues = Booked(), {"exam": QueueSpec(), "other": QueueSpec()}
    made.up("old", 4, "T4")
    made.feed(ev.QueuesChanged(QueueDocument(queues=queues), 0))
    made.book()
    made.go(1)
    made.state.put(QueueDocument(2, queues=queues, pools=(OLD,)))
    made.up("new", 4)
    made.go(1)
    assert not made.runs(made.run("stays", queue="other", gpu_model=("A100",)).id)
    made.go(HOUR)
    assert [place.agent_id for place in made.booking().places] == ["new"]
