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
    """GPUs of a node that are kept, and the amounts beside them for others; each field as of `Reservation`."""

    gpus: frozenset[GpuId]
    spare: Resources
    shares: tuple[tuple[GpuId, Share], ...] = ()
    beside: tuple[GpuPart, ...] = ()


def reservation_of(
    job: Job, resources: Resources, node: NodeCapacity, kept: Kept, awaited: Sequence[Allocation], at: float
) -> Reservation:
    """Return the reservation of amounts of a node for tasks of a job. `awaited` and `at` are those of `Reservation`."""
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
    """Return GPUs for tasks that ask for shares; None if there is no room for all of them.

    Of a GPU that is open to shares now, the shares of the tasks are kept. Any other GPU is kept whole: its other
    parts may be used only when it is opened for these tasks.

    Args:
        request: Amounts that each task takes.
        node: The node as it is now.
        ready: The node when the tasks can start.
        model: Model of the GPUs; any model that the request accepts if None.
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
