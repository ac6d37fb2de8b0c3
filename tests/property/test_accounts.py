"""Whatever happens: what is on record is the integral of what was held, added up by brute force."""

from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.usage import MS
from tests.chaos.acts import ACTS, Act, do
from tests.chaos.world import World
from tests.property.examples import examples

NUMBERS = st.integers(0, 2**24 - 1)
#: Records are of the host's clock: one that is set back takes from them what no sum of what passed shows.
FORWARD = sorted(set(ACTS) - {"set clock", "set clock in hours"})
COMMON = st.sampled_from(("submit", "offer", "progress", "deliver many"))


def held_milli(state: State) -> int:
    """Thousandths of GPUs that launches hold which are not given up, without a look at how the engine counts."""
    held = 0
    for task in state.work.tasks.values():
        job = state.work.jobs.get(task.job_id or JobId(""))
        if task.ended or job is None or job.state is JobState.PENDING or task not in state.work.round_of(job):
            continue
        share, spec = task.counted_share, job.spec
        # Of a part of a card the larger of its compute and its fraction: others have neither.
        fraction = spec.gpu_milli if spec.gpu_milli < 1000 else 0
        each = 1000 if share is None else max(share.compute_milli, fraction)
        held += each * len(task.gpus)
    return held


class Counted(World):
    """A world that adds up what is held while time passes. A restart loses what was not on disk."""

    integral = 0  # thousandths of GPUs times milliseconds

    def pass_time(self, seconds: float) -> None:
        before, held = int(self.now * MS), held_milli(self.state)
        super().pass_time(seconds)
        self.integral += held * (int(self.now * MS) - before)

    def restart(self, *how: Any) -> None:
        before, held = int(self.now * MS), held_milli(State.restored(self.now, self.witness.disk.load()))
        super().restart(*how)
        self.integral += held * (int(self.now * MS) - before)

    def recorded(self) -> int:
        """Sum up what the records have, those that are open up to now."""
        every = self.witness.disk.records(0, 1 << 60, int(self.now * MS))
        return sum(
            part.gpu_milli * (record.ends_ms - record.span.begins_ms)
            for record in every
            for part in record.span.parts
        )


class Accounts(RuleBasedStateMachine):
    """A world whose records are right after each act."""

    world: Counted

    @initialize(shape=st.integers(0, 2**32 - 1))
    def begin(self, shape: int) -> None:
        self.world = Counted(shape)

    @rule(name=COMMON, a=NUMBERS, b=NUMBERS)
    def goes_on(self, name: str, a: int, b: int) -> None:
        do(self.world, Act(name, a, b))

    @rule(name=st.sampled_from(FORWARD), a=NUMBERS, b=NUMBERS)
    def happens(self, name: str, a: int, b: int) -> None:
        do(self.world, Act(name, a, b))

    @invariant()
    def records_are_the_integral(self) -> None:
        assert self.world.recorded() == self.world.integral

    @invariant()
    def what_is_open_is_what_is_held(self) -> None:
        spans = self.world.state.ledger.spans.values()
        assert sum(part.gpu_milli for span in spans for part in span.parts) == held_milli(self.world.state)
        assert self.world.witness.disk.spans == self.world.state.ledger.spans


TestAccounts = Accounts.TestCase
TestAccounts.settings = examples(10, 40, stateful_step_count=40, suppress_health_check=list(HealthCheck))
