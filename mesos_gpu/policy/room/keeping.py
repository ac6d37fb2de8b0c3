"""Reservations of GPUs of a node for waiting tasks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.capacity.fit import share_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.sharing.parts import GpuPart


@dataclass(frozen=True, slots=True)
class Kept:
    """Reserved GPUs of a node, and the amounts that others may use beside them; fields as in `Reservation`."""

    gpus: frozenset[GpuId]
    spare: Resources
    shares: tuple[tuple[GpuId, Share], ...] = ()
    beside: tuple[GpuPart, ...] = ()


def reservation_of(
    job: Job, resources: Resources, node: NodeCapacity, kept: Kept, awaited: Sequence[Allocation], at: float
) -> Reservation:
    """Return the reservation of a node's resources for tasks of a job.

    Args:
        job: Job to reserve for.
        resources: Total amount for its tasks on the node.
        node: Node to reserve on.
        kept: Reserved GPUs, and the amounts for others.
        awaited: Allocations that must end before the start.
        at: Expected start, seconds since the epoch.
    """
    return Reservation(
        job_id=job.id,
        queue=job.spec.queue,
        resources=resources,
        at=at,
        agent_id=node.agent_id,
        hostname=node.hostname,
        gpus=kept.gpus,
        spare=kept.spare,
        awaited=tuple(awaited),
        shares=kept.shares,
        beside=kept.beside,
    )


def keep_shares(
    request: Request, node: NodeCapacity, ready: NodeCapacity, model: str | None, count: int
) -> Kept | None:
    """Reserve GPUs for tasks that request shares; return None if there is no room for all of them.

    On a GPU that is open to shares now, only the shares of the tasks are reserved. Any other GPU is reserved as a
    whole: its other parts can be used only after it is opened for these tasks.

    Args:
        request: Amounts that each task takes.
        node: Node as it is now.
        ready: Node at the time when the tasks can start.
        model: GPU model to use; None for any model that the request accepts.
        count: Number of tasks.
    """
    open_now, now = {part.gpu_id for part in node.parts}, {gpu.id for gpu in node.gpus}
    whole: set[GpuId] = set()
    shares: list[tuple[GpuId, Share]] = []
    for _ in range(count):
        chosen = share_for(request, ready, model)
        if chosen is None or chosen.share is None:
            return None
        ready = ready.minus(request.resources, chosen.gpus, chosen.share)
        for gpu_id in chosen.gpus:
            if gpu_id in open_now & now:
                shares.append((gpu_id, chosen.share))
            else:
                whole.add(gpu_id)
    ids = {gpu_id for gpu_id, _ in shares}
    beside = tuple([part for part in ready.parts if part.gpu_id in ids])
    return Kept(frozenset(whole), ready.free, tuple(shares), beside)
