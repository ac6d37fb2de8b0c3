"""Values on their way: read on threads, kept in memory, sealed for one launch."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.adapters.secrets.deliveries import Deliveries, Sealed
from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.events import SecretsRead
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.secret import IMAGE_LOGIN, LARGEST_SECRET, Secret
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.conftest import wait_until
from tests.doubles.builders import spec

KEY = envelope.new_key()
NODE = Node(AgentId("S0"), "a1", inventory=Inventory(secrets_key=envelope.public_of(KEY)))


@dataclass
class Kept:
    """A store of what a test says."""

    values: dict[str, bytes] = field(default_factory=dict)
    hook: Callable[[str], None] = lambda _: None

    def see(self) -> None:
        """Find nothing wrong."""

    def read(self, source: str) -> bytes:
        self.hook(source)
        if source not in self.values:
            raise NotFound(f"there is no secret {source}", remedy="write it")
        return self.values[source]

    def close(self) -> None:
        """Keep what it has: a test looks."""


@dataclass
class World:
    store: Kept
    said: dict[str, str]
    deliveries: Deliveries

    def read(self, *sources: str) -> dict[str, str]:
        """Return the reason why each value could not be read."""
        self.said.clear()
        self.deliveries.read(sources)
        wait_until("all are answered", lambda: set(self.said) == set(sources))
        return dict(self.said)


@pytest.fixture
def world() -> Iterator[World]:
    said: dict[str, str] = {}

    def say(event: SecretsRead) -> None:
        said.update(event.problems)

    store = Kept({"team/hf": b"hunter2"})
    deliveries = Deliveries(store, say)
    yield World(store, said, deliveries)
    deliveries.close()


def launch(*secrets: Secret) -> LaunchTask:
    task = Task(TaskId("job-1.1"), AgentId("S0"), "job-1.1", JobId("job-1"), TaskState.LAUNCHED, 0.0)
    return LaunchTask(task, spec(secrets=secrets), (), ())


def unsealed(sealed: Sealed) -> dict[str, bytes]:
    assert sealed.problem == ""
    return envelope.unseal(sealed.message, [KEY], envelope.purpose("job-1.1", "S0"))


def test_secret_delivery_seals_the_read_values_for_a_launch(world: World) -> None:
    assert world.read("team/hf", "team/none") == {"team/hf": "", "team/none": "there is no secret team/none"}
    sealed = world.deliveries.sealed(launch(Secret("A", "team/hf"), Secret("B", "team/hf", "b")), NODE)
    assert unsealed(sealed) == {"A": b"hunter2", "B": b"hunter2"}
    assert "hunter2" not in sealed.message


def test_secret_delivery_names_a_value_that_is_not_at_hand(world: World) -> None:
    assert "was not available" in world.deliveries.sealed(launch(Secret("A", "team/hf")), NODE).problem
    world.read("team/hf")
    world.deliveries.forget(["team/hf", "team/none"])
    assert "was not available" in world.deliveries.sealed(launch(Secret("A", "team/hf")), NODE).problem


def test_secret_delivery_forgets_a_secret_that_is_gone(world: World) -> None:
    world.read("team/hf")
    del world.store.values["team/hf"]
    assert world.read("team/hf")["team/hf"]
    assert "was not available" in world.deliveries.sealed(launch(Secret("A", "team/hf")), NODE).problem


@pytest.mark.parametrize(
    "node", [None, Node(AgentId("S0"), "a1"), Node(AgentId("S0"), "a1", inventory=Inventory())]
)
def test_secret_delivery_to_a_node_without_a_key_is_refused(world: World, node: Node | None) -> None:
    world.read("team/hf")
    assert "no key" in world.deliveries.sealed(launch(Secret("A", "team/hf")), node).problem


def test_secret_delivery_bounds_the_sum_of_values(world: World) -> None:
    world.store.values["large"] = b"x" * LARGEST_SECRET
    world.read("large")
    many = launch(*(Secret(f"S{n}", "large") for n in range(5)))
    assert "more than" in world.deliveries.sealed(many, NODE).problem


def test_secret_delivery_goes_on_after_a_store_breaks(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def breaks(source: str) -> None:
        if source == "team/broken":
            raise RuntimeError("while reading hunter2")

    world.store.hook = breaks
    with caplog.at_level(logging.DEBUG):
        assert world.read("team/broken") == {
            "team/broken": "secret team/broken could not be read: RuntimeError"
        }
    assert "hunter2" not in caplog.text
    assert world.read("team/hf") == {"team/hf": ""}


def test_secret_delivery_that_hangs_delays_no_other(world: World) -> None:
    released = threading.Event()
    world.store.hook = lambda source: None if source == "team/hf" else assert_released(released)
    world.deliveries.read(["slow"])
    try:
        assert world.read("team/hf") == {"team/hf": ""}
    finally:
        released.set()


def assert_released(released: threading.Event) -> None:
    assert released.wait(60)


def test_secret_delivery_seals_the_login_for_the_image_beside_variables(world: World) -> None:
    world.store.values["team/ngc"] = b"login"
    world.read("team/hf", "team/ngc")
    wanted = replace(launch(Secret("A", "team/hf")), image_secret="team/ngc")
    assert unsealed(world.deliveries.sealed(wanted, NODE)) == {"A": b"hunter2", IMAGE_LOGIN: b"login"}
    assert unsealed(world.deliveries.sealed(replace(launch(), image_secret="team/ngc"), NODE)) == {
        IMAGE_LOGIN: b"login"
    }
    missing = world.deliveries.sealed(replace(launch(), image_secret="team/none"), NODE)
    assert missing == Sealed(problem="the value of secret team/none was not available")
