"""Effects of a change of the tree of queues, as JSON."""

from typing import Any

from mesos_gpu.model.queue_plan import PlannedQueue, PlannedReclaim, QueuePlan
from mesos_gpu.model.shares.units import number_of


def shown(plan: QueuePlan) -> dict[str, Any]:
    """Return the effects of a change as an answer."""
    return {
        "queues": [_queue(queue) for queue in plan.queues],
        "borrowers": list(plan.borrowers),
        "reclaims": [_reclaim(reclaim) for reclaim in plan.reclaims],
        "blocks": [
            {"kind": block.kind.value, "name": block.name, "queue": block.queue, "reason": block.reason}
            for block in plan.blocks
        ],
    }


def _reclaim(each: PlannedReclaim) -> dict[str, Any]:
    return {
        "job_id": each.taker,
        "queue": each.queue,
        "at": each.room.at,
        "givers": [
            {"queue": giver.queue, "jobs": list(giver.jobs), "gpus": number_of(giver.gpus_milli)}
            for giver in each.room.givers
        ],
    }


def _queue(each: PlannedQueue) -> dict[str, Any]:
    return {
        "path": each.path,
        "pool": each.pool,
        "guarantee_before_gpus": _gpus(each.guarantee_before),
        "guarantee_gpus": _gpus(each.guarantee),
        "due_before_gpus": _gpus(each.due_before),
        "due_gpus": _gpus(each.due),
        "if_asked_gpus": _gpus(each.if_asked),
        "held_gpus": number_of(each.held),
        "pending_gpus": number_of(each.pending),
        "gains_gpus": _signed(each.gains),
        "gives_back_gpus": number_of(each.gives_back),
    }


def _gpus(milli: int | None) -> int | float | None:
    return None if milli is None else number_of(milli)


def _signed(milli: int) -> int | float:
    return number_of(milli) if milli >= 0 else -number_of(-milli)
