"""Bookings of cards that are shared until they begin."""

from dataclasses import replace

from mesos_gpu.model.shares.card import Ability, Sharing
from tests.doubles.builders import gpu
from tests.unit.engine.bookings.worlds import Booked

HALF = {"gpu_milli": 500, "cpus": 0.1, "queue": "batch"}


class Shared(Booked):
    """Nodes whose hosts can enforce shares."""

    def up(self, name: str, gpus: int, model: str = "A100") -> None:
        """A node with so many such GPUs comes up."""
        self.size[name] = gpus
        sharing = Sharing(81920, ((Ability.SHIM, ""),))
        cards = [replace(gpu(f"{name}-{i}", model), sharing=sharing) for i in range(gpus)]
        self.node(name, *cards, cpus=100)

    def offer_again(self) -> None:
        """Offer once what no task holds of each node; a shared card is held by the task that covers it."""
        whole = dict(self.size)
        for gpu_id in self.state.gpus.covers:
            self.size[str(gpu_id).split("-", maxsplit=1)[0]] -= 1
        shares = [
            self.state.work.tasks[task] for task in self.state.work.live if self.state.work.tasks[task].share
        ]
        for task in shares:
            self.size[str(task.agent_id)] += len(task.gpus)  # those do not count twice
        super().offer_again()
        self.size = whole


def test_shared_cards_are_whole_when_their_booking_begins() -> None:
    world = Shared()
    world.up("a1", 4)
    world.book(gpus=2, begins="12:10", lasts_s=600)
    world.submit("s", **HALF, gpus=2, preemptible=True, priority=5)
    world.run("w", queue="batch")
    for task_id in world.state.gpus.covers.values():
        world.status(task_id, "TASK_RUNNING")
    assert (world.on("s"), world.on("w")) == ({"a1-0", "a1-1"}, {"a1-2"})
    world.go(605)
    assert (world.booking().is_active, world.booking().gpus) == (True, ("a1-0", "a1-1"))
    assert not world.on("s")
    world.submit("e", gpus=2, cpus=0.1, queue="exam")
    world.go(2)
    assert world.on("e") == {"a1-0", "a1-1"}
