"""Conversion of the state's objects to the JSON of docs/reference/rest.md."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from mesos_gpu.api.http import arrays
from mesos_gpu.api.sight.jobs import CLOSED, Sight, subject_of
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.spec.cluster import line
from mesos_gpu.api.spec.gpus.idle import ComingEnd
from mesos_gpu.api.spec.job_fields import ArrayCounts
from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.api.v1.gpus.use import gpu_use, job_idle, job_use
from mesos_gpu.engine.reading.jobs import (
    coming_end,
    counts_of,
    made_room_for,
    round_of,
    unknown_tasks,
    unmade_tasks,
)
from mesos_gpu.engine.reading.nodes import drain_of, holder_of, is_used, shared_gpu
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.room.node_amounts import NodeAmounts
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.indexes import Runs, both, merged, union, without
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.jobs.queue import Estimate, QueueUse, Waiting
from mesos_gpu.model.jobs.quota import owner_of
from mesos_gpu.model.jobs.why import JobPlan, Why
from mesos_gpu.model.nodes.drain import Drain, Reset
from mesos_gpu.model.nodes.gpu import Health, Inventory, Transition
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.share import Share, guarantee
from mesos_gpu.model.shares.units import PER_PERCENT, number_of
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.model.tasks.shared_gpu import SharedGpu
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.explain.silence import backed_off, never_reported
from mesos_gpu.wire import job_fields
from mesos_gpu.wire.job_fields import HIDDEN

_FOR_OTHERS = frozenset((NoticeReason.RECLAIM, NoticeReason.PREEMPTION, NoticeReason.CALENDAR))


def job(view: View, job: Job, sight: Sight, *, show_env: bool = False) -> shapes.Job:
    """Return a job with its latest launch as JSON, without fields that are invisible to the caller.

    `show_env`: whether values of its environment are included; they may be secrets.
    """
    reads = sight.reads(job)
    whole: shapes.Job = {
        "id": job.id,
        "name": job.spec.name,
        "state": job.state.value,
        "version": job.version,
        "owner": owner_of(job) or None,
        "hidden": not reads,
        **_requested(view, job.spec, show_env),
        "priority": job.priority,
        **_progress(view, job, round_of(view, job), sight),
    }
    return whole if reads else cast("shapes.Job", {**whole, **CLOSED})


def _requested(view: View, spec: JobSpec, show_env: bool) -> shapes.Requested:
    requested: Any = {
        **job_fields.write(spec, show_env=show_env),
        "runs_as": spec.user or view.default_user,
    }
    return cast("shapes.Requested", requested)


def _progress(view: View, job: Job, tasks: Sequence[Task], sight: Sight) -> shapes.Progress:
    """Return the progress of a job; `tasks`: those of its latest launch, by rank."""
    return {
        "healthy": _healthy(tasks),
        "learnt_min_driver": job.learnt_min_driver,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "attempts": job.attempts,
        "launches": job.launches,
        "infrastructure_failures": job.infrastructure_failures,
        "kill_requested": job.kill_requested,
        "exit_code": job.exit_code,
        "message": sight.veiled(view, job.message),
        "task_id": job.task_id,
        "task_ids": [task.id for task in tasks],
        "hostname": tasks[0].hostname if tasks else None,
        "hostnames": list(dict.fromkeys(task.hostname for task in tasks)),
        "gpu_ids": [gpu_id for task in tasks for gpu_id in task.gpus],
        "share": next((share(task.share) for task in tasks if task.share), None),
        "share_uses": [
            {**_use(use), "gpu_id": use.gpu_id, "task_id": use.task_id}
            for task in tasks
            for use in _uses(view, task)
        ],
        "use": job_use(view, tasks),
        "resize": _resize([resize for task in tasks if (resize := _resize_of(task))]),
        "notice": notice(view, [task.notice for task in tasks if task.notice], sight),
        "coming_end": _coming_end(view, job, sight),
        "idle": job_idle(view, job),
        "checkpoint_at": job.checkpoint_at,
        "stopped": job.stopped,
        "array_id": job.array,
        "array_index": job.index,
        "array_counts": array_counts(view, job.id),
        "room_made_by": [
            other.id
            for job_id in made_room_for(view, job.id)
            if (other := view.jobs.get(job_id)) is not None and sight.sees(other)
        ],
    }


def array_counts(view: View, job_id: JobId) -> ArrayCounts | None:
    """Return the numbers of an array's tasks by progress; None if the job is no array."""
    array = view.arrays.get(job_id)
    if array is None:
        return None
    counts = counts_of(view, array)
    return {
        "tasks": counts.tasks,
        "waiting": counts.waiting,
        "running": counts.running,
        "finished": counts.finished,
        "failed": counts.failed,
        "killed": counts.killed,
    }


def array(
    view: View, array: JobArray, places: Runs, members: Sequence[Job], sight: Sight, most: int
) -> Array:
    """Return an array with its tasks at some places by progress, and the first jobs among them.

    Args:
        places: Positions of the requested tasks in the array.
        members: Jobs of these tasks.
        sight: Visibility for the caller.
        most: Maximum number of jobs in the answer.
    """
    text, live = array.indexes.text, [job for job in members if not job.state.ended]
    running = merged(sorted(_place(array, job) for job in live if job.state is not JobState.PENDING))
    ended = {
        "finished": text(both(array.finished, places)),
        "failed": text(both(array.failed, places)),
        "killed": text(both(array.killed, places)),
    }
    over = union(union(array.finished, array.failed), union(array.killed, running))
    return {
        "array": job(view, arrays.shown(view, array), sight),
        "waiting": text(without(places, over)),
        "running": text(running),
        "finished": ended["finished"],
        "failed": ended["failed"],
        "killed": ended["killed"],
        "jobs": [job(view, member, sight) for member in members[:most]],
        "total": len(members),
    }


def _place(array: JobArray, job: Job) -> int:
    return array.indexes.position(job.index or 0) or 0


def notice(view: View, notices: Sequence[Notice], sight: Sight) -> shapes.Notice | None:
    """Return the notice of a job's tasks, which all get the same one; None without a notice."""
    if not notices:
        return None
    last = notices[0]
    by = view.jobs.get(last.by) if last.by else None
    by = by if by is not None and sight.sees(by) else None
    return {
        "reason": last.reason.value,
        "why": sight.veiled(view, last.why),
        "by": by.id if by else None,
        "by_queue": by.spec.queue if by else None,
        "at": last.at,
        "until": last.until,
        "recalled_at": last.recalled_at,
        "told": all(task_notice.told >= task_notice.number for task_notice in notices),
        "warning": last.warning,
    }


def _coming_end(view: View, job: Job, sight: Sight) -> ComingEnd | None:
    """Return the planned end of a running job, without invisible jobs and queues."""
    end = coming_end(view, job)
    if end is None:
        return None
    return {
        "at": end.at,
        "reason": end.reason.value,
        "why": sight.veiled(view, end.why),
        "then": end.then,
    }


def _uses(view: View, task: Task) -> list[ShareUse]:
    """Return the use of a task's shares as its node last reported it."""
    node = view.nodes.get(task.agent_id) if task.share and not task.ended else None
    uses = node.inventory.uses if node and node.inventory else ()
    return [use for use in uses if use.task_id == task.id and use.gpu_id in task.gpus]


def _use(use: ShareUse) -> shapes.ShareUse:
    return {
        "memory_mib": use.memory_mib,
        "most_memory_mib": use.most_mib,
        "compute_pct": None if use.compute_milli is None else use.compute_milli / PER_PERCENT,
        "refused": use.refused,
        "windows_missed": use.missed,
        "problem": use.problem or None,
    }


def _resize_of(task: Task) -> Resizing | None:
    """Return the latest resize of a task, as refused if the task has ended without an answer; None without a resize."""
    if task.resize is None or not task.resize.number:
        return None  # only the current share was read
    if not (task.ended and task.resize.pending):
        return task.resize
    return replace(task.resize, answered=True, refused="the task ended before its host answered")


def _resize(resizes: Sequence[Resizing]) -> shapes.Resize | None:
    """Return the resize of a job with several tasks: that of a task that has not answered, or has refused.

    After a withdrawal, tasks that had refused before do not count.
    """
    if not resizes:
        return None
    withdrawn = [task_resize for task_resize in resizes if task_resize.withdrawn]
    resize = max(
        withdrawn or resizes, key=lambda task_resize: (task_resize.pending, bool(task_resize.refused))
    )
    return {
        "state": _state(resize),
        "memory_mib": resize.share.memory_mib,
        "memory_max_mib": resize.share.memory_max_mib,
        "compute_pct": resize.share.compute_milli / PER_PERCENT,
        "since": resize.since,
        "reason": resize.refused or None,
        "used_memory_mib": resize.used_mib,
        "restart": resize.restartable,
    }


def _state(resize: Resizing) -> str:
    if resize.pending:
        return "withdrawing" if resize.withdrawn else "asked"
    return "refused" if resize.refused else "withdrawn" if resize.withdrawn else "done"


def share(share: Share) -> shapes.Share:
    """Return the share that is granted of each GPU, and how it is enforced, as JSON."""
    by = guarantee(share)
    return {
        "memory_mib": share.memory_mib,
        "memory_max_mib": share.memory_max_mib,
        "compute_pct": share.compute_milli / PER_PERCENT,
        "method": share.method.value,
        "instance": share.instance or None,
        "guarantee": {"memory": by.memory, "compute": by.compute, "faults": by.faults},
    }


def _healthy(tasks: Sequence[Task]) -> bool | None:
    """Return True if all tasks are known to be healthy, False if one is known to be unhealthy, else None."""
    results = {task.healthy for task in tasks if not task.ended}
    return False if False in results else True if results == {True} else None


def task(view: View, task: Task, sight: Sight) -> shapes.Task:
    """Return a launch, a node monitor, or a task that holds a shared GPU in Mesos, as JSON."""
    owner = view.jobs.get(task.job_id) if task.job_id else None
    return {
        "id": task.id,
        "job_id": task.job_id,
        "name": _name(task, owner),
        "state": task.state.value,
        "hostname": task.hostname,
        "agent_id": task.agent_id,
        "ended_as": _ended_as(task),
        "attempt": task.attempt,
        "rank": task.rank,
        "ports": list(task.ports),
        "ports_problem": _problem_of_ports(view, task, owner, sight),
        "healthy": task.healthy,
        "notice": notice(view, [task.notice] if task.notice else [], sight),
        "preempted_for": sight.named(
            view.jobs.get(task.preempted_for) if task.preempted_for else None, lambda job: job.id
        ),
        "gpu_ids": list(task.gpus),
        "share": share(task.share) if task.share else None,
        "covers": task.covers,
        "launched_at": task.launched_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "message": sight.veiled(view, task.message) if owner is None or sight.reads(owner) else HIDDEN,
    }


def _ended_as(task: Task) -> str | None:
    """Return why the scheduler ended a launch and queued its job again; None for other launches."""
    if task.state is not TaskState.LOST or not task.evicted:
        return None
    for_others = task.notice is not None and task.notice.reason in _FOR_OTHERS
    return "preempted" if task.preempted_for is not None or for_others else "evicted"


def _problem_of_ports(view: View, task: Task, owner: Job | None, sight: Sight) -> str:
    """Return why a task is not proved to listen on its ports, hidden if its job may not be read."""
    if task.listening is None or task.ended:
        return ""
    return str(sight.veiled(view, task.listening.problem)) if owner is None or sight.reads(owner) else HIDDEN


def _name(task: Task, owner: Job | None) -> str:
    """Return the name of a task: that of its job, or one that shows its purpose."""
    if owner is not None:
        return owner.spec.name
    if task.covers is not None:
        return f"shared-{task.covers}"
    listed = task.unknown.listed if task.unknown else None
    return "gpu-monitor" if task.job_id is None else (listed.name if listed else "") or task.id


def gpu(view: View, status: GpuStatus, sight: Sight) -> shapes.Gpu:
    """Return a GPU, its health, and the job that holds it, as far as visible, as JSON."""
    node, gpu, card = status.node, status.gpu, status.card
    holder, shared = holder_of(view, gpu.id), shared_gpu(view, gpu)
    task_id, job_id, job_name = _names(view, holder, sight) if holder else (None, None, None)
    return {
        "uuid": gpu.id,
        "model": gpu.model,
        "memory_mib": gpu.memory_mib,
        "compute_capability": gpu.compute_capability,
        "index": gpu.index,
        "minor": gpu.minor,
        "pci_bus_id": gpu.pci_bus_id,
        "numa_node": gpu.numa_node,
        "health": status.health.value,
        "reason": sight.veiled(view, status.reason),
        "since": status.since or None,
        "node_health": gpu.health.value,
        "node_reason": gpu.reason,
        "warnings": list(gpu.warnings),
        "drain": drain(status.drain) if status.drain else None,
        "reset": reset(card.reset) if card and card.reset else None,
        "hostname": node.hostname,
        "agent_id": node.id,
        "task_id": task_id,
        "job_id": job_id,
        "job_name": job_name,
        "shares": _gpu_shares(view, gpu.id, shared, sight) if shared else [],
        "sharing": _sharing(shared) if shared else None,
        "use": gpu_use(view, node, gpu.id),
    }


def _names(view: View, task: Task, sight: Sight) -> tuple[str, str | None, str | None]:
    """Return ids of a task and its job, and the job's name, hidden if the job is invisible."""
    owner = view.jobs.get(task.job_id) if task.job_id else None
    if owner is None:
        return task.id if sight.sees_task(view.jobs, task) else HIDDEN, None, None
    return (task.id, owner.id, owner.spec.name) if sight.sees(owner) else (HIDDEN, HIDDEN, HIDDEN)


def _gpu_shares(view: View, gpu_id: GpuId, shared: SharedGpu, sight: Sight) -> list[shapes.GpuShare]:
    return [_gpu_share(view, gpu_id, task, task.share, sight) for task in shared.tenants if task.share]


def _gpu_share(view: View, gpu_id: GpuId, task: Task, granted: Share, sight: Sight) -> shapes.GpuShare:
    task_id, job_id, job_name = _names(view, task, sight)
    used = next((use for use in _uses(view, task) if use.gpu_id == gpu_id), None)
    return {
        **share(granted),
        "task_id": task_id,
        "job_id": job_id,
        "job_name": job_name,
        "used": _use(used) if used else None,
    }


def _sharing(shared: SharedGpu) -> shapes.GpuSharing:
    return {
        "state": shared.state.value,
        "task_id": shared.cover.id if shared.cover else None,
        "memory_mib": shared.capacity_mib,
        "free_memory_mib": shared.memory_mib,
        "free_compute_pct": shared.compute_milli / PER_PERCENT,
        "method": shared.method.value if shared.method else None,
        "domain": shared.domain or None,
    }


def gpu_with_history(view: View, status: GpuStatus, sight: Sight) -> shapes.GpuWithHistory:
    """Return a GPU with its history, oldest first, as JSON."""
    history = [transition(change) for change in status.card.changes] if status.card else []
    return {**gpu(view, status, sight), "history": sight.veiled(view, history)}


def transition(change: Transition) -> shapes.Transition:
    """Return a change of a GPU's health as JSON."""
    return {"at": change.at, "old": change.old.value, "new": change.new.value, "reason": change.reason}


def drain(drain: Drain) -> shapes.Drain:
    """Return a drain of a GPU or a node as JSON."""
    return {
        "target": drain.target.value,
        "name": drain.name,
        "reason": drain.reason,
        "by": drain.by,
        "since": drain.since,
        "deadline_at": drain.deadline_at,
    }


def reset(reset: Reset) -> shapes.Reset:
    """Return a reset in progress as JSON."""
    return {"request": reset.request, "reason": reset.reason, "by": reset.by, "since": reset.since}


def node_state(node: Node) -> str:
    """Return the state of an agent: it is up if its monitor has reported, or if it has no GPUs."""
    if node.lost_at is not None:
        return "lost"
    if node.reported_at is None and node.monitor_launches:
        return "unmonitored"
    if node.wire and node.launch_not_before:
        return "backed-off"
    return "up" if node.wire else "unfit"


def node(
    view: View, node: Node, gpus: Sequence[GpuStatus], tasks: int, amounts: NodeAmounts | None
) -> shapes.Node:
    """Return an agent with its GPUs as JSON.

    Args:
        view: View of the state.
        node: Node with one agent.
        gpus: GPUs of the node.
        tasks: Number of its live tasks.
        amounts: CPUs and memory of the node; None if its next offer is on its way.
    """
    drained = drain_of(view, node.hostname)
    inventory = node.inventory or Inventory(source="")
    return {
        "agent_id": node.id,
        "hostname": node.hostname,
        "state": node_state(node),
        "launch_problem": backed_off(node) or never_reported(node) or None,
        "level_problem": view.fabric.outside.get(node.id),
        "attributes": dict(node.attributes),
        "region": node.region,
        "zone": node.zone,
        **counted_gpus(view, gpus),
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
        "volume": inventory.volume,
        "volume_problem": inventory.volume_problem or None,
        "isolation": inventory.isolation or None,
        "control_ports": inventory.control_ports or None,
        "drain": drain(drained) if drained else None,
        "source": inventory.source or None,
        "reported_at": node.reported_at,
        "tasks": tasks,
        "cpus_total": amounts.total.cpus if amounts else None,
        "cpus_free": amounts.free.cpus if amounts else None,
        "mem_mib_total": amounts.total.mem_mib if amounts else None,
        "mem_mib_free": amounts.free.mem_mib if amounts else None,
    }


def status(
    view: View,
    webui_url: str,
    version: str,
    secured: shapes.Secured,
    counted: shapes.Counted,
    *,
    journal_problem: str = "",
) -> shapes.Status:
    """Return the state of the scheduler, and a summary, as JSON; `counted`: numbers of all GPUs."""
    states = Counter(job.state.value for job in view.jobs.values())
    if unmade := unmade_tasks(view):
        states[JobState.PENDING.value] += unmade
    inventories = {n.hostname: n.inventory for n in view.nodes.values() if n.inventory}
    return {
        "framework_id": view.framework_id,
        "master_url": view.master_url,
        "connected": view.connected,
        "webui_url": webui_url,
        "started_at": view.started_at,
        "version": version,
        **secured,
        "jobs": states,
        **counted,
        "nodes": len(view.nodes),
        "tasks_unknown": len(unknown_tasks(view)),
        "unsaved": view.unsaved or None,
        "journal_problem": journal_problem or None,
        "level_problem": view.fabric.problem or None,
        "drains": [drain(node_drain) for node_drain in view.drains.values()],
        "isolation_off": sorted(
            host for host, inventory in inventories.items() if inventory.isolation == "off"
        ),
        "control_ports_off": sorted(
            host for host, inventory in inventories.items() if inventory.control_ports == "off"
        ),
    }


def counted_gpus(view: View, gpus: Sequence[GpuStatus]) -> shapes.Counted:
    """Return how many of the GPUs are used, not healthy, or drained."""
    return {
        "gpus_total": len(gpus),
        "gpus_used": sum(is_used(view, status) for status in gpus),
        "gpus_sick": sum(s.health not in (Health.OK, Health.DRAINED) for s in gpus),
        "gpus_drained": sum(s.health is Health.DRAINED for s in gpus),
    }


def why(view: View, why: Why, sight: Sight) -> shapes.Why:
    """Return why a job waits as JSON, without invisible jobs."""
    nearest = why.nearest
    shown: shapes.Why = {
        "job_id": why.job_id,
        "state": why.state.value,
        "summary": why.summary,
        "queue_position": why.queue_position,
        "can_ever_run": why.can_ever_run,
        "tasks_fit": why.tasks_fit,
        "agents": len(why.nodes),
        "funnel": [
            {"reason": r.reason.value, "removed": r.removed, "left": r.left, "example": r.example}
            for r in why.funnel
        ],
        "nodes": [
            {"hostname": n.hostname, "agent_id": n.agent_id, "reasons": list(n.reasons)} for n in why.nodes
        ],
        "nearest": {"hostname": nearest.hostname, "missing": nearest.missing} if nearest else None,
        "estimate": estimate(why.estimate) if why.estimate else None,
    }
    return cast("shapes.Why", sight.veiled(view, shown))


def job_plan(view: View, plan: JobPlan, sight: Sight) -> shapes.JobPlan:
    """Return the plan of a job as JSON."""
    return {
        "verdict": plan.verdict.value,
        "hostnames": list(plan.hostnames),
        "reliefs": [{"field": relief.key, "value": relief.value} for relief in plan.reliefs],
        "why": why(view, plan.why, sight),
    }


def estimate(estimate: Estimate) -> shapes.Estimate:
    """Return the estimate of a pending job's start as JSON."""
    return {"at": estimate.at, "basis": estimate.basis}


def waiting(view: View, waiting: Waiting, sight: Sight) -> line.Waiting:
    """Return a pending job at its position as JSON, without invisible jobs in its estimate."""
    job, spec, reservation = waiting.job, waiting.job.spec, waiting.kept
    return {
        "position": waiting.position,
        "id": job.id,
        "name": spec.name,
        "owner": owner_of(job) or None,
        "queue": spec.queue,
        "app": subject_of(job).app or None,
        "array_id": job.array,
        "priority": job.priority,
        "effective_priority": waiting.effective_priority,
        "gpus": number_of(spec.gpu_milli_in_all),
        "cpus": spec.cpus * spec.tasks,
        "mem_mib": spec.mem_mib * spec.tasks,
        "submitted_at": job.submitted_at,
        "reservation": {
            "hostname": reservation.hostname,
            "gpu_ids": list(reservation.gpus),
            "at": reservation.at,
        }
        if reservation
        else None,
        "estimate": sight.veiled(view, estimate(waiting.estimate)),
    }


def queue(use: QueueUse) -> line.QueueUse:
    """Return a queue with its limit and its usage as JSON."""
    return {
        "name": use.name,
        "limit_gpus": use.limit_gpus,
        "used_gpus": use.used_gpus,
        "waiting": use.waiting,
        "waiting_since": use.waiting_since,
    }
