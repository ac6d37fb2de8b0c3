"""Bookings of which not every node is to be had: they begin with what there is, and say what is lacking."""

import json
from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import BookingState
from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.nodes.offer import Scalar
from tests.doubles.builders import gpu
from tests.unit.engine.bookings.worlds import HOUR, Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}
LACKS = "1 of its 2 nodes is lacking"


def pair_without_one() -> Booked:
    """A booking of two nodes, of which one is lost before it begins."""
    world = Booked()
    world.up("n1", 4)
    world.up("n2", 4)
    world.book(nodes=2)
    world.feed(ev.AgentLost(AgentId("n2")))
    return world


def nodes(world: Booked) -> list[str]:
    return [place.agent_id for place in world.booking().places]


def test_booking_lacking_a_node_begins_and_has_it_when_it_comes() -> None:
    world = pair_without_one()
    world.go(HOUR + 1)
    assert (world.booking().is_active, nodes(world), world.booking().told) == (True, ["n1"], True)
    assert LACKS in world.booking().message
    world.run("exam", queue="exam", booking="exam", gpus=4)
    assert world.on("exam") == {f"n1-{i}" for i in range(4)}
    world.up("n3", 4)
    world.go(2)
    assert (nodes(world), world.booking().told) == (["n1", "n3"], False)
    assert world.booking().message == "what was lacking is replaced by n3.example"


def test_booking_lacking_a_node_gives_notice_in_time_on_the_one_it_has() -> None:
    world = pair_without_one()
    assert not world.runs(world.run("endless").id)
    world.run("stoppable", gpus=4, **STOPPABLE)
    world.go(HOUR - 68)
    assert (world.booking().state, nodes(world)) == (BookingState.PREPARING, ["n1"])
    (task,) = world.state.work.round_of(world.job("stoppable"))
    assert task.notice is not None
    world.go(69)
    assert (world.on("stoppable"), world.booking().is_active) == (set(), True)


def test_booking_that_lost_two_nodes_has_one_again_when_it_comes() -> None:
    world = Booked()
    for name in ("n1", "n2"):
        world.up(name, 4)
    world.book(nodes=2)
    world.go(HOUR + 1)
    for name in ("n1", "n2"):
        world.feed(ev.AgentLost(AgentId(name)))
    world.up("n3", 4)
    world.go(2)
    assert nodes(world) == ["n3"]
    assert world.booking().told
    assert LACKS in world.booking().message


def test_booking_replaces_a_silent_node_though_the_clock_was_set_back() -> None:
    world = Booked()
    for name in ("n1", "n2"):
        world.up(name, 4)
    world.book()
    world.go(HOUR + 1)
    (silent,) = nodes(world)
    (other,) = {"n1", "n2"} - {silent}
    world = world.restarted()
    world.settings = world.settings.changed(report_stale_s=30.0)
    world.feed(ev.Tick())
    world.now -= 900.0
    world.feed(ev.Tick())
    world.now += 850.0
    world.report(other, *(gpu(f"{other}-{i}") for i in range(4)))
    world.go(3)
    assert nodes(world) == [other]


class Apart(Booked):
    """Two GPUs of n1 are reserved for another role, and offered to that alone."""

    def offer_again(self) -> None:
        super().offer_again()
        whole = next(
            (each for each in self.state.cluster.offers.values() if each.id.startswith("n1-x")), None
        )
        if whole is None or "n1" not in self.size:
            return
        self.feed(ev.OfferRescinded(whole.id))
        rest = tuple([each for each in whole.resources if each.name != "gpus"])
        theirs = Scalar("gpus", 2.0, json.dumps({"role": "gpu-prod"}))
        self.serial += 1
        self.offers(
            replace(
                whole, id=OfferId(f"n1-m{self.serial}"), resources=(*rest, Scalar("gpus", 2.0)), role="gpu"
            ),
            replace(whole, id=OfferId(f"n1-t{self.serial}"), resources=(theirs,), role="gpu-prod"),
        )


def test_gpus_that_mesos_has_reserved_for_the_role_of_another_queue_are_not_chosen() -> None:
    world = Apart(role="gpu", role_of={"prod": "gpu-prod"})
    for name in ("n1", "n2"):
        world.up(name, 4)
    world.run("waits", queue="prod", gpus=8)
    world.book(begins="12:01")
    world.go(61)
    assert (world.booking().is_active, nodes(world)) == (True, ["n2"])


def test_booking_looks_to_another_node_while_somebody_stays_on_its_own() -> None:
    world = Booked()
    world.up("n1", 4)
    assert world.runs(world.run("stays", gpus=4).id)
    world.book()
    world.go(1)
    world.up("n2", 4)
    assert not world.runs(world.run("next", gpus=4).id), "it would be in the way"
    world.go(HOUR + 1)
    assert [place.agent_id for place in world.booking().places] == ["n2"]
