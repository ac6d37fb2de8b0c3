"""Whatever happens, in whatever order: the invariants of the simulated world, with hypothesis as its chance.

`python -m tests.chaos` draws the same acts from a seed, in long runs; hypothesis searches short ones, and shrinks.
"""

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesos_gpu.policy.gpus.history import MAX
from tests.chaos.acts import ACTS, Act, do
from tests.chaos.settle import settle
from tests.chaos.world import World
from tests.property.examples import examples

NUMBERS = st.integers(0, 2**24 - 1)
COMMON = st.sampled_from(
    ("submit", "offer", "progress", "deliver many")
)  # else little runs that could go wrong


class Scheduler(RuleBasedStateMachine):
    """A world whose every act checks what it leads to, and raises what it finds."""

    world: World

    @initialize(shape=st.integers(0, 2**32 - 1))
    def begin(self, shape: int) -> None:
        self.world = World(shape, closely=True)

    @rule(name=COMMON, a=NUMBERS, b=NUMBERS)
    def goes_on(self, name: str, a: int, b: int) -> None:
        do(self.world, Act(name, a, b))

    @rule(name=st.sampled_from(sorted(ACTS)), a=NUMBERS, b=NUMBERS)
    def happens(self, name: str, a: int, b: int) -> None:
        do(self.world, Act(name, a, b))

    @invariant()
    def histories_are_bounded_and_true(self) -> None:
        for card in self.world.state.gpus.cards.values():
            assert len(card.changes) <= MAX
            assert list(card.changes) == sorted(card.changes, key=lambda change: change.at)
            assert len(set(card.changes)) == len(card.changes)

    def teardown(self) -> None:
        """When nothing breaks any more, every job that can run comes to an end."""
        if hasattr(self, "world"):
            settle(self.world)


TestScheduler = Scheduler.TestCase
TestScheduler.settings = examples(8, 60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
