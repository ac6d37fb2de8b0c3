"""GPUs, the tasks that hold them, and what the engine remembers about them."""

from dataclasses import dataclass, field

from mesos_gpu.engine.indexes.work import GpuWork
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.drain import Card
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.tasks.task import Task


@dataclass(slots=True)
class GpuPart:
    """GPUs of the state. Times are in seconds since the epoch.

    Attributes:
        cards: Records of GPUs that outlive the process.
        holders: Task that holds each GPU wholly.
        sharers: Tasks that hold shares of each GPU.
        covers: Task that holds each shared GPU in Mesos.
        idle: Time since which no task has a share of a GPU that is held for shares.
        uncovered: Time since which no task holds a shared GPU in Mesos.
        keeper_failures: Failures in a row of the tasks that hold an agent's shared GPUs, and the time until which no
            such task is launched.
        gone_covers: Ended tasks that held shared GPUs, the latest to end last.
        keepers: Number of such tasks and of their executors so far, so that no id is used twice.
        resets: GPUs whose reset has no answer yet.
        contested: GPUs whose claim was refused, with the time until which they get no launch.
        gpu_work: Work of tasks on GPUs, as far as reports say.
    """

    cards: dict[GpuId, Card] = field(default_factory=dict)
    holders: dict[GpuId, TaskId] = field(default_factory=dict)
    sharers: dict[GpuId, dict[TaskId, Share]] = field(default_factory=dict)
    covers: dict[GpuId, TaskId] = field(default_factory=dict)
    idle: dict[GpuId, float] = field(default_factory=dict)
    uncovered: dict[GpuId, float] = field(default_factory=dict)
    keeper_failures: dict[AgentId, tuple[int, float]] = field(default_factory=dict)
    gone_covers: dict[TaskId, None] = field(default_factory=dict)
    keepers: int = 0
    resets: dict[GpuId, None] = field(default_factory=dict)
    contested: dict[GpuId, float] = field(default_factory=dict)
    gpu_work: GpuWork = field(default_factory=GpuWork)

    def is_shared(self, gpu_id: GpuId) -> bool:
        """Return whether a GPU is open to shares."""
        return gpu_id in self.sharers or gpu_id in self.covers

    def is_allocated(self, gpu_id: GpuId) -> bool:
        """Return whether a task holds a GPU, or it is open to shares: for Mesos it is used in both cases."""
        return gpu_id in self.holders or self.is_shared(gpu_id)

    def set_card(self, card: Card) -> None:
        """Add the record of a GPU, or replace it."""
        self.cards[card.id] = card
        if card.reset is None:
            self.resets.pop(card.id, None)
        else:
            self.resets.setdefault(card.id)

    def set_task(self, task: Task) -> None:
        """Record the GPUs that a task holds; an ended task holds none."""
        if task.ended:
            self.gpu_work.counts.pop(task.id, None)
            self._let_go(task)
        else:
            self._hold(task)

    def _hold(self, task: Task) -> None:
        """Record a task as holder of its GPUs."""
        share = task.counted_share
        for gpu in task.gpus:
            if share is None:
                self.holders[gpu] = task.id
            else:
                self.sharers.setdefault(gpu, {})[task.id] = share
        if task.covers is not None:
            self.covers[task.covers] = task.id

    def _let_go(self, task: Task) -> None:
        """Remove a task from the holders of its GPUs."""
        for gpu in task.gpus:
            if self.holders.get(gpu) == task.id:
                del self.holders[gpu]
            sharers = self.sharers.get(gpu, {})
            sharers.pop(task.id, None)
            if not sharers:
                self.sharers.pop(gpu, None)
        if task.covers is not None and self.covers.get(task.covers) == task.id:
            del self.covers[task.covers]
