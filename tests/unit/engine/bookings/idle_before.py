"""Cost of a booking of a node in GPUs that stand idle until it begins, beside a drain of that node from the moment of
booking: `python -m tests.unit.engine.bookings.idle_before` prints the table of docs/bookings.md.

Four nodes of four GPUs, one of which is booked two hours ahead. Jobs of one GPU, 2 to 20 minutes long, with time limits
half as long again; every second one is preemptible, with a notice of a minute. The same jobs come in each run.
"""

import random
from dataclasses import dataclass
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from tests.unit.engine.bookings.worlds import HOUR, Booked

LOADS: Final = (0.5, 0.9, 1.2)  # of what all GPUs can do
WAYS: Final = ("nothing", "booking", "drain")
_NODES: Final = ("n1", "n2", "n3", "n4")
_GPUS: Final = 4  # of each node
_STEP_S: Final = 10.0
_LENGTHS_S: Final = (120, 1200)
_WARM_S: Final = 1800.0  # until the load is there, before anything is booked


@dataclass(frozen=True, slots=True)
class Cost:
    """From the moment of booking to the begin.

    Attributes:
        idle_gpu_s: GPUs that nothing held, of all nodes, times seconds.
        lost_gpu_s: Of jobs that were told to leave, what is done again.
        left: GPUs of the booked node that were still held a minute after its begin.
    """

    idle_gpu_s: float
    lost_gpu_s: float
    left: int


class Loaded(Booked):
    """Jobs come, run and end."""

    def __init__(self, load: float, seed: int) -> None:
        super().__init__()
        for name in _NODES:
            self.up(name, _GPUS)
        self._dice, self._length_s, self.lost_gpu_s = random.Random(seed), dict[str, int](), 0.0
        self._each_s = (
            sum(_LENGTHS_S) / 2 / (load * _GPUS * len(_NODES))
        )  # from one job to the next, on average
        self._next_at = self.now

    def step(self) -> None:
        """The next seconds: what has run for its length ends, what is killed begins anew, and new jobs come."""
        self.now += _STEP_S
        for name, length_s in self._length_s.items():
            job = self.job(name)
            if job.state is JobState.RUNNING and self.now >= (job.started_at or self.now) + length_s:
                for task in self.state.work.round_of(job):
                    self.status(task.id, "TASK_FINISHED", agent=task.agent_id)
        while self._next_at <= self.now:
            self._come()
        ran = [
            job for job in map(self.job, self._length_s) if job.state in (JobState.RUNNING, JobState.KILLING)
        ]
        self.obey(self.feed(ev.Tick()))
        for job in ran:
            if self.job(job.id).state is JobState.PENDING:
                self.lost_gpu_s += self.now - (job.started_at or self.now)
        self.offer_again()
        self.started()

    def _come(self) -> None:
        name, length_s = f"j{len(self._length_s)}", self._dice.randint(*_LENGTHS_S)
        stops = {"preemptible": True, "notice_s": 60.0} if len(self._length_s) % 2 else {}
        self.submit(name, gpus=1, cpus=0.1, timeout_s=1.5 * length_s, kill_grace_s=10.0, **stops)
        self._length_s[name] = length_s
        self._next_at += self._dice.expovariate(1 / self._each_s)


def cost_of(load: float, way: str, *, ahead_s: int = 2 * HOUR, seed: int = 1) -> Cost:
    """Measure the cost of one way at a load; the begin is `ahead_s` after the booking."""
    world, idle = Loaded(load, seed), 0.0
    while world.now < world.state.started_at + _WARM_S:
        world.step()
    world.lost_gpu_s, begins = 0.0, world.now + ahead_s
    if way == "booking":
        world.book(begins=f"{'13' if ahead_s == HOUR else '14'}:30")
        assert world.booking().begins == begins
    elif way == "drain":
        world.feed(ev.DrainRequested(Target.NODE, "n1.example", "an exam", "ann"))
    while world.now < begins:
        world.step()
        idle += _STEP_S * (_GPUS * len(_NODES) - len(world.state.gpus.holders))
    lost = world.lost_gpu_s
    for _ in range(6):
        world.step()
    gpus = world.booking().gpus if way == "booking" else tuple(f"n1-{i}" for i in range(_GPUS))
    return Cost(idle, lost, sum(gpu in world.state.gpus.holders for gpu in gpus) if way != "nothing" else 0)


def main() -> None:
    """Print the table, means over three seeds."""
    print("| load | idle for the booking | work lost to its notices | idle for the drain | work lost to it |")
    print("|---|--:|--:|--:|--:|")
    for load in LOADS:
        sums = dict.fromkeys(("idle", "lost", "drained", "drain lost"), 0.0)
        for seed in range(3):
            none, booked, drained = (cost_of(load, way, seed=seed) for way in WAYS)
            sums["idle"] += booked.idle_gpu_s - none.idle_gpu_s
            sums["lost"] += booked.lost_gpu_s
            sums["drained"] += drained.idle_gpu_s - none.idle_gpu_s
            sums["drain lost"] += drained.lost_gpu_s
            assert booked.left == drained.left == 0, (booked, drained)
        print(f"| {load:.0%} | {' | '.join(f'{value / 3:,.0f}' for value in sums.values())} |", flush=True)


if __name__ == "__main__":
    main()
