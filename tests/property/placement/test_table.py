"""The table that is kept over matches: with it the engine decides what it decides with a new one."""

import contextlib
import random
from collections.abc import Callable

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.job import Placement
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.cluster.node_index import NodeIndex
from tests.chaos import run as chaos
from tests.chaos import world
from tests.chaos.acts import do
from tests.chaos.violation import Violation
from tests.doubles.builders import World, gpu, offer

Step = Callable[[State, ev.Event, float, Settings], list[fx.Effect]]


@pytest.mark.parametrize("placement", [Placement.BUNDLE, Placement.SPREAD])
@pytest.mark.parametrize(
    ("seed", "acts"), [(3, 150), *(pytest.param(seed, 400, marks=pytest.mark.long) for seed in range(4))]
)
def test_a_kept_table_decides_as_a_new_one(
    seed: int, acts: int, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = 0

    def both(state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        nonlocal launches
        settings = settings.changed(placement=placement)
        if not isinstance(event, ev.Match):
            return step(state, event, now, settings)
        twin = STATES.decode(STATES.encode(state))
        effects = step(state, event, now, settings)
        assert step(twin, event, now, settings) == effects
        launches += sum(isinstance(effect, fx.Launch) for effect in effects)
        return effects

    monkeypatch.setattr(world, "step", both)
    place, chance = world.World(seed), random.Random(seed)
    for act in chaos.acts_of(chance, acts):
        with contextlib.suppress(Violation, MesosGpuError):
            do(place, act)
    assert launches > 3


def test_table_looks_only_at_changed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = World(settings=Settings.of("executor", "monitor"))
    made.register()
    for i in range(50):
        made.node(f"a{i}", gpu(f"g{i}"))
    made.submit("waits", gpus=2)
    looked: list[str] = []
    real = NodeIndex.update

    def update(index: NodeIndex, node: NodeCapacity) -> None:
        looked.append(node.agent_id)
        real(index, node)

    monkeypatch.setattr(NodeIndex, "update", update)
    made.submit("one", gpus=1)
    assert len(set(looked)) == 1, "the agent that it was launched on"
    looked.clear()
    made.offers(offer("again", "a7", gpus=1))
    assert set(looked) <= {"a7", str(made.state.work.tasks[made.job("one").task_id or ""].agent_id)}  # type: ignore[index]
