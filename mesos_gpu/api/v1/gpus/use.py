"""Utilization of GPUs as JSON: current and recent."""

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
_DIGITS = 2  # decimals of means


def gpu_use(view: View, node: Node, gpu_id: GpuId) -> shapes.GpuUse | None:
    """Return the current use of a GPU; None if its host does not report it."""
    uses = node.inventory.gpu_uses if node.inventory else ()
    use = next((use for use in uses if use.gpu_id == gpu_id), None)
    if use is None:
        return None
    # Fast, as there may be ten thousand GPUs.
    meters: Any = {name: getattr(use.meters, name) for name in _METERS}
    return {
        **cast("shapes.Meters", meters),
        "at": use.at,
        "busy_pct": _recent(view, view.use_history.cards.get(gpu_id)),
        "processes": use.processes,
        "xid": use.xid,
    }


def is_metered(node: Node, gpu_id: GpuId) -> bool:
    """Return whether the host of a GPU reports its utilization."""
    uses = node.inventory.gpu_uses if node.inventory else ()
    return any(use.gpu_id == gpu_id and use.work is not None for use in uses)


def job_use(view: View, tasks: Iterable[Task]) -> shapes.JobUse | None:
    """Return how the live tasks of a job use their GPUs; None if it is not known of all of them."""
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
        "idle_s": None if None in idle else min(seconds for seconds in idle if seconds is not None),
    }


def over_time(view: View, series: Iterable[Series | None]) -> shapes.UseOverTime:
    """Return the past of a GPU, or of all tasks of a job: means of utilization, sums of memory and power."""
    histories = [history for history in series if history is not None] or [Series()]
    return {
        "fine": _series(view.now, [history.fine for history in histories]),
        "coarse": _series(view.now, [history.coarse for history in histories]),
    }


def cluster_use(view: View) -> shapes.ClusterUse:
    """Return the utilization of all GPUs in the last day."""
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
    """Return the use by a task as its node last reported it."""
    node = view.nodes.get(task.agent_id)
    uses = node.inventory.task_uses if node and node.inventory else ()
    return [use for use in uses if use.task_id == task.id and use.gpu_id in task.gpus]


def _recent(view: View, series: Series | None) -> float | None:
    """Return the mean utilization of the last minute, in percent."""
    busy = series.fine.recent(view.now, RECENT_S) if series else None
    return None if busy is None else round(busy, _DIGITS)


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of values; None if one is not known."""
    all_ = list(values)
    return None if None in all_ else sum(value or 0 for value in all_)


def _series(now: float, rings: list[Ring]) -> shapes.UseSeries:
    """Return means of utilization, and sums of memory and power, of several series."""
    busy, memory, power = zip(*(ring.read(now) for ring in rings), strict=True)
    return {
        "step_s": rings[0].step_s,
        "until": now,
        "busy_pct": [_rounded(mean(step)) for step in zip(*busy, strict=True)],
        "memory_mib": [_total(step) for step in zip(*memory, strict=True)],
        "power_w": [_total(step) for step in zip(*power, strict=True)],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _total(values: tuple[float | None, ...]) -> float | None:
    return None if None in values else round(sum(value or 0.0 for value in values), _DIGITS)


def job_idle(view: View, job: Job) -> JobIdle | None:
    """Return the state of a job with idle GPUs, or that is protected from being ended for them; None for other jobs."""
    shown = idle_of(view, job)
    if shown is None:
        return None
    idle, rules = shown
    return {
        "state": idle.state.value,
        "since": idle.since,
        "idle_s": idle.idle_ms / 1000,
        "warn_after_s": rules.warn_after_s,
        "return_after_s": rules.return_after_s,
        "policy": rules.policy.value,
        "keep_until": idle.keep_until,
        "kept_by": idle.kept_by or None,
    }
