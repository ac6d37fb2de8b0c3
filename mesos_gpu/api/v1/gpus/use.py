"""The use of cards as JSON: how they are used now, and were of late."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, cast

from mesos_gpu.api.spec.gpus import use as shapes
from mesos_gpu.api.spec.gpus.idle import JobIdle
from mesos_gpu.engine.reading.jobs import idle_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu_use import Meters, TaskUse
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.gpus.use_series import RECENT_S, Ring, Series, mean

_METERS = tuple(field.name for field in fields(Meters))
_DIGITS = 2  # of means, behind the point


def gpu_use(view: View, node: Node, gpu_id: GpuId) -> shapes.GpuUse | None:
    """How a card of a node is used; None: its host does not say it."""
    said = node.inventory.gpu_uses if node.inventory else ()
    use = next((use for use in said if use.gpu_id == gpu_id), None)
    if use is None:
        return None
    meters: Any = {name: getattr(use.meters, name) for name in _METERS}  # of ten thousand cards at each look
    return {
        **cast("shapes.Meters", meters),
        "at": use.at,
        "busy_pct": _recent(view, view.use_history.cards.get(gpu_id)),
        "processes": use.processes,
        "xid": use.xid,
    }


def is_metered(node: Node, gpu_id: GpuId) -> bool:
    """Whether the host of a card says how busy it is."""
    said = node.inventory.gpu_uses if node.inventory else ()
    return any(use.gpu_id == gpu_id and use.work is not None for use in said)


def job_use(view: View, tasks: Iterable[Task]) -> shapes.JobUse | None:
    """How the living tasks of a job use what they hold; None: their hosts do not say it of all."""
    living = [task for task in tasks if task.gpus and not task.ended]
    uses = [use for task in living for use in _uses(view, task)]
    if not uses or len(uses) < sum(len(task.gpus) for task in living):
        return None
    busy = mean(_recent(view, view.use_history.tasks.get(task.id)) for task in living)
    idle = [None if use.idle_since is None else max(use.at - use.idle_since, 0.0) for use in uses]
    return {
        "busy_pct": None if busy is None else round(busy, _DIGITS),
        "memory_mib": _sum(use.memory_mib for use in uses),
        "processes": _sum(use.processes for use in uses),
        "idle_s": None if None in idle else min(each for each in idle if each is not None),
    }


def over_time(view: View, series: Iterable[Series | None]) -> shapes.UseOverTime:
    """The past of a card, or of all tasks of a job: the mean of what they did, the sum of what they had."""
    known = [each for each in series if each is not None] or [Series()]
    return {
        "fine": _series(view.now, [each.fine for each in known]),
        "coarse": _series(view.now, [each.coarse for each in known]),
    }


def cluster_use(view: View) -> shapes.ClusterUse:
    """Return the use of all GPUs in the last day."""
    ring = view.use_history.cluster
    total, used, busy, power = ring.read(view.now)
    return {
        "step_s": ring.step_s,
        "until": view.now,
        "gpus_total": total,
        "gpus_used": used,
        "busy_pct": busy,
        "power_w": power,
    }


def _uses(view: View, task: Task) -> list[TaskUse]:
    """What its node last said of a task."""
    node = view.nodes.get(task.agent_id)
    said = node.inventory.task_uses if node and node.inventory else ()
    return [use for use in said if use.task_id == task.id and use.gpu_id in task.gpus]


def _recent(view: View, series: Series | None) -> float | None:
    busy = series.fine.recent(view.now, RECENT_S) if series else None
    return None if busy is None else round(busy, _DIGITS)


def _sum(values: Iterable[int | None]) -> int | None:
    """Add values up that are all known; None: one is not."""
    all_ = list(values)
    return None if None in all_ else sum(value or 0 for value in all_)


def _series(now: float, rings: list[Ring]) -> shapes.UseSeries:
    busy, memory, power = zip(*(ring.read(now) for ring in rings), strict=True)
    return {
        "step_s": rings[0].step_s,
        "until": now,
        "busy_pct": [_rounded(mean(each)) for each in zip(*busy, strict=True)],
        "memory_mib": [_total(each) for each in zip(*memory, strict=True)],
        "power_w": [_total(each) for each in zip(*power, strict=True)],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _total(values: tuple[float | None, ...]) -> float | None:
    return None if None in values else round(sum(value or 0.0 for value in values), _DIGITS)


def job_idle(view: View, job: Job) -> JobIdle | None:
    """How far a job is on the way from idle GPUs to its end; None: it is not, and nobody keeps it from that."""
    shown = idle_of(view, job)
    if shown is None:
        return None
    known, rules = shown
    return {
        "state": known.state.value,
        "since": known.since,
        "idle_s": known.idle_ms / 1000,
        "warn_after_s": rules.warn_after_s,
        "return_after_s": rules.return_after_s,
        "policy": rules.policy.value,
        "keep_until": known.keep_until,
        "kept_by": known.kept_by or None,
    }
