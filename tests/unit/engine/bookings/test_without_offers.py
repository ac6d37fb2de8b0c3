"""A cluster that is quiet before a booking: nothing waits, so Mesos was asked for no offers, and there are none."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.nodes.gpu import Health
from tests.doubles.builders import every, gpu
from tests.unit.engine.bookings.worlds import Booked


class Quiet(Booked):
    """Offers come two seconds after they were asked for, and stay away once they are asked for no more."""

    asked_at: float = float("inf")

    def go(self, seconds: float) -> list[fx.Effect]:
        """Let time pass second by second."""
        effects: list[fx.Effect] = []
        for _ in range(round(seconds)):
            self.now += 1.0
            new = self.feed(ev.Tick())
            effects += new
            effects += self.obey(new)
            if every(new, fx.Suppress):
                self.asked_at = float("inf")
            if every(new, fx.Revive):
                self.asked_at = self.now
            if self.now >= self.asked_at + 2:
                self.offer_again()
        return effects


def quiet() -> Quiet:
    """Three nodes; a job runs on one of them, and nobody waits."""
    world = Quiet(sweep_interval_s=600.0)
    for name in ("n1", "n2", "n3"):
        world.up(name, 4)
    world.book(begins="12:10")
    world.run("runs", gpus=4, preemptible=True, notice_s=60.0, kill_grace_s=10.0)
    assert world.on("runs")
    world.go(500)
    assert world.state.mesos.suppressed
    assert not world.state.cluster.offers
    return world


def is_told(world: Quiet) -> bool:
    (task,) = world.state.work.round_of(world.job("runs"))
    return task.notice is not None


def test_booking_without_offers_begins_on_a_free_node_and_gives_no_notice() -> None:
    world = quiet()
    world.go(102)
    (place,) = world.booking().places
    assert not world.on("runs") & set(place.gpus)
    assert (is_told(world), world.booking().told, world.booking().is_active) == (False, False, True)


def test_booking_asks_for_offers_before_it_begins() -> None:
    world = quiet()
    world.size.pop("n2" if "n2-0" not in world.on("runs") else "n3")  # of it nothing is offered
    effects = world.go(102)
    assert every(effects, fx.Revive)
    (place,) = world.booking().places
    assert place.agent_id in world.size
    assert not world.on("runs") & set(place.gpus)


def test_booking_replaces_a_card_that_falls_ill_without_offers() -> None:
    world = quiet()
    world.go(200)
    assert world.state.mesos.suppressed
    ill, _, _, _ = gpus = world.booking().gpus
    world.report(ill.split("-")[0], gpu(ill, health=Health.SICK), *map(gpu, gpus[1:]))
    world.go(1)
    (place,) = world.booking().places
    assert ill not in place.gpus
    assert (is_told(world), world.booking().told) == (False, False)
