"""A bare engine with a tree of queues: nodes whose free GPUs are offered again, jobs that run, jobs that end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.offer import resources_of
from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec, Shape
from tests.doubles.builders import World, every, gpu, offer

POOL = "default"
REPORTS_S = 10.0  # between two reports of a node
SLOW_S = 6.0  # of a long time, by single seconds at its begin and at its end
STEPS_S = ((130.0, 20.0), (11.0, 5.0), (0.0, 1.0))  # of the time between, by how much of it is left


def shapes(count: int, gpus: int) -> Guarantee:
    """So many nodes of so many GPUs."""
    return Guarantee(count * gpus * 1000, (Shape(count, gpus),))


def queue(guarantee: Guarantee | int = 0, **more: Any) -> QueueSpec:
    """A queue that is guaranteed so many GPUs, or shapes of them."""
    own = Guarantee(guarantee * 1000) if isinstance(guarantee, int) else guarantee
    return QueueSpec(guarantee_gpus={POOL: own} if own.milli else {}, **more)


@dataclass
class Tenants(World):
    """A world in which time, offers and reports go on by themselves."""

    cards: dict[str, int] = field(default_factory=dict)  # by agent, its GPUs

    def document(self, reclaim_after_s: float | None = None, /, **queues: QueueSpec) -> list[fx.Effect]:
        """Another tree; `__` in the name of a queue is a slash."""
        wanted = {name.replace("__", "/"): spec for name, spec in queues.items()}
        version = self.state.quota.queues.version
        return self.feed(ev.QueuesChanged(QueueDocument(queues=wanted), version, reclaim_after_s))

    def document_of(self, queues: Mapping[str, QueueSpec], **more: Any) -> list[fx.Effect]:
        """Another tree, with what stands beside the queues."""
        return self.feed(
            ev.QueuesChanged(QueueDocument(queues=queues, **more), self.state.quota.queues.version)
        )

    def agents(self, count: int, gpus: int) -> None:
        """Nodes come up, with GPUs of their own."""
        for _ in range(count):
            number = len(self.cards)
            self.cards[f"a{number}"] = gpus
            self.node(f"a{number}", *(gpu(f"g{number * 100 + i}") for i in range(gpus)), cpus=64)

    def offer_again(self) -> list[fx.Effect]:
        """Report of each node every few seconds, and offer what is free there."""
        effects = []
        for node in list(self.state.cluster.nodes.values()):
            if node.lost_at is not None:
                continue
            if node.monitor is not None and self.now - (node.reported_at or 0.0) >= REPORTS_S:
                effects += self.report(node.id, *node.gpus)
            live = [t for t in self.state.work.tasks.values() if t.agent_id == node.id and not t.ended]
            free = len(node.gpus) - sum(len(task.gpus) for task in live)
            held = [each for each in self.state.cluster.offers.values() if each.agent_id == node.id]
            free -= sum(resources_of(each.resources).gpus for each in held)
            if free > 0:
                self.serial += 1
                effects += self.offers(offer(f"r{self.serial}", node.id, gpus=free, cpus=32))
        return effects

    def starts(self) -> list[fx.Effect]:
        """Let all launched tasks run."""
        effects = []
        for task in list(self.state.work.tasks.values()):
            if task.job_id is not None and task.state.value in ("launched", "starting"):
                effects += self.status(task.id, "TASK_STARTING", agent=task.agent_id)
                effects += self.status(task.id, "TASK_RUNNING", agent=task.agent_id)
        return effects

    def ends(self, name: str, state: str = "TASK_FINISHED") -> list[fx.Effect]:
        """All tasks of a job end; what they held is offered again."""
        effects = []
        for task in self.state.work.round_of(self.job(name)):
            effects += self.status(task.id, state, agent=task.agent_id)
        return effects + self.offer_again()

    def runs(self, name: str, queue: str, gpus: int = 1, **more: Any) -> None:
        """A preemptible job that starts at once."""
        self.submit(name, **{"queue": queue, "gpus": gpus, "preemptible": True, **more})
        self.offer_again()
        self.starts()
        assert self.job(name).state is JobState.RUNNING, name
        self.offer_again()

    def passes(self, seconds: float) -> set[str]:
        """Let time go on, by seconds at first and at last, and faster between; the jobs that are ended in it."""
        killed, began, until = set[str](), self.now, self.now + int(seconds)
        while self.now < until:
            left_s = until - self.now
            step_s = next(step_s for least_s, step_s in STEPS_S if left_s > least_s)
            self.now += 1.0 if self.now - began < SLOW_S else step_s
            effects = self.feed(ev.Tick()) + self.offer_again()
            killed |= {str(self.state.work.tasks[kill.task_id].job_id) for kill in every(effects, fx.Kill)}
        return killed

    def obeys(self) -> set[str]:
        """Let tasks with a sent kill end; return the names of their jobs."""
        names = set()
        for task in list(self.state.work.tasks.values()):
            if task.kill_sent_at is not None and not task.ended:
                self.status(task.id, "TASK_KILLED", agent=task.agent_id)
                names.add(str(task.job_id))
        self.offer_again()
        return names

    def seat_of(self, name: str) -> str | None:
        """The queue whose guarantee a job's seat is of; None: it borrows."""
        seat = self.state.work.jobs[JobId(name)].seat
        return None if seat is None else seat.queue
