"""Bare engines with bookings: the clock goes where a test puts it, second by second."""

from dataclasses import replace
from typing import Any

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.bookings.booking import Booking, BookingSpec
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.offer import resources_of
from tests.doubles.builders import World, gpu, offer, saved_of

NOON = 1_795_521_600.0  # Tue 2026-11-24 12:00 UTC
HOUR = 3600
STEPS_S = ((900.0, 300.0), (180.0, 60.0), (15.0, 5.0), (0.0, 1.0))  # of time, by how much of it is left


class Booked(World):
    """A registered engine; its nodes are offered whole again as often as it is asked, to the role `offered_to`; "": to
    the default one."""

    offered_to: str = ""

    def __init__(self, now: float = NOON, **settings: Any) -> None:
        asked = Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf"), **settings)
        super().__init__(asked, now, State(started_at=now))
        self.size: dict[str, int] = {}
        self.register()

    def up(self, name: str, gpus: int, model: str = "A100") -> None:
        """A node with so many GPUs comes up."""
        self.size[name] = gpus
        self.node(name, *(gpu(f"{name}-{i}", model) for i in range(gpus)), cpus=100)

    def book(self, name: str = "exam", **fields: Any) -> Booking:
        """A booking with the id of its name: a whole node of 4 for an hour, an hour from now."""
        asked: dict[str, Any] = {"queue": "exam", "gpus": 4, "begins": "13:00", "lasts_s": HOUR, **fields}
        self.feed(ev.BookingMade(name, BookingSpec(name, **asked), "ann"))
        return self.booking(name)

    def booking(self, name: str = "exam") -> Booking:
        """A booking as it is now."""
        return self.state.calendar.bookings[name]

    def go(self, seconds: float) -> list[fx.Effect]:
        """Let time pass, the last seconds of it one by one; free GPUs are offered again, and killed tasks end."""
        effects: list[fx.Effect] = []
        until = self.now + seconds
        while self.now < until:
            left_s = until - self.now
            step_s = next(step_s for least_s, step_s in STEPS_S if left_s > least_s)
            self.now = min(self.now + step_s, until)
            new = self.feed(ev.Tick())
            effects += new
            effects += self.obey(new)
            self.offer_again()
        return effects

    def obey(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        """Tasks that are killed end."""
        done: list[fx.Effect] = []
        for effect in effects:
            task = self.state.work.tasks.get(effect.task_id) if isinstance(effect, fx.Kill) else None
            if task is not None and not task.ended:
                done += self.status(task.id, "TASK_KILLED", agent=task.agent_id)
        return done

    def offer_again(self) -> None:
        """Offer once what no task holds of each node."""
        for name in self.size:
            node = next((n for n in self.state.cluster.nodes.values() if n.id == name), None)
            if node is None or node.lost_at is not None:
                continue
            live = [
                self.state.work.tasks[t]
                for t in self.state.work.live
                if self.state.work.tasks[t].agent_id == name
            ]
            free = self.size[name] - sum(len(task.gpus) for task in live)
            held = [o for o in self.state.cluster.offers.values() if o.agent_id == name]
            there = sum(resources_of(o.resources).gpus for o in held) == free
            if there and {o.role for o in held} == {self.offered_to}:
                continue
            for each in held:
                self.feed(ev.OfferRescinded(each.id))
            self.serial += 1
            made = offer(f"{name}-x{self.serial}", name, cpus=99 - len(live), gpus=free)
            self.offers(replace(made, role=self.offered_to))

    def run(self, name: str, **fields: Any) -> Job:
        """A job that runs at once, if it is launched."""
        self.submit(name, **{"cpus": 0.1, "gpus": 1, **fields})
        self.offer_again()
        self.started()
        return self.job(name)

    def started(self) -> None:
        """Let launched tasks run."""
        for task_id in list(self.state.work.live):
            task = self.state.work.tasks[task_id]
            if task.job_id is not None and task.started_at is None and not task.ended:
                self.status(task_id, "TASK_RUNNING", agent=task.agent_id)

    def runs(self, name: str) -> bool:
        """Whether a job holds something."""
        return self.job(name).state in (JobState.STARTING, JobState.RUNNING, JobState.KILLING)

    def on(self, name: str) -> set[str]:
        """The GPUs that a job holds."""
        job = self.state.work.jobs[JobId(name)]
        return {str(gpu) for task in self.state.work.round_of(job) if not task.ended for gpu in task.gpus}

    def restarted(self) -> "Booked":
        """The engine as it is after a restart, an instant later."""
        again = Booked.__new__(Booked)
        World.__init__(
            again, self.settings, self.now, State.restored(self.now, saved_of(self.state)), self.serial
        )
        again.size = dict(self.size)
        again.register()
        return again
