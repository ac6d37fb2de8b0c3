"""Nouns as the JSON of docs/reference/rest.md."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from mesos_gpu.api.service import View
from mesos_gpu.api.spec import shapes
from mesos_gpu.model.apps.healthcheck import HealthCheck
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.queue import Estimate, QueueUse, Waiting
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.drain import Drain, Reset
from mesos_gpu.model.nodes.gpu import Health, Inventory, Transition
from mesos_gpu.model.nodes.node import Node, Standing
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.mounts import text_of

HIDDEN: Final = "(hidden)"


def job(view: View, found: Job, *, show_env: bool = False) -> shapes.Job:
    """A job, with where its latest launch is. Values of its environment may be secrets: `show_env` shows them."""
    return {
        "id": found.id,
        "name": found.spec.name,
        "state": found.state.value,
        "version": found.version,
        **_requested(view, found.spec, show_env),
        **_progress(found, view.round_of(found)),
    }


def _requested(view: View, spec: JobSpec, show_env: bool) -> shapes.Requested:
    return {
        "command": spec.command,
        "argv": list(spec.argv) or None,
        "args": list(spec.args) or None,
        "cpus": spec.cpus,
        "mem_mib": spec.mem_mib,
        "disk_mib": spec.disk_mib,
        "gpus": spec.gpus,
        "gpu_model": list(spec.gpu_model),
        "gpu_memory_mib": spec.gpu_memory_mib,
        "compute_capability": spec.compute_capability,
        "tasks": spec.tasks,
        "on_member_failure": spec.on_member_failure.value,
        "preemptible": spec.preemptible,
        "env": dict(spec.env) if show_env else dict.fromkeys(spec.env, HIDDEN),
        "user": spec.user,
        "runs_as": spec.user or view.default_user,
        "labels": dict(spec.labels),
        "max_attempts": spec.max_attempts,
        "timeout_s": spec.timeout_s,
        "kill_grace_s": spec.kill_grace_s,
        "image": spec.image,
        "container_engine": spec.container_engine.value if spec.image else None,
        "pull": spec.pull,
        "control_access": [control.value for control in spec.control_access],
        "on_gpu_failure": spec.on_gpu_failure.value,
        "min_driver": spec.min_driver,
        "placement": spec.placement.value if spec.placement else None,
        "priority": spec.priority,
        "queue": spec.queue,
        "app": spec.app,
        "constraints": [constraint.as_list() for constraint in spec.constraints],
        "near": spec.near,
        "away": spec.away,
        "ports": [wish.host_port for wish in spec.ports if wish.host_port is not None],
        "fetch": [artifact(each) for each in spec.fetch],
        "volumes": [text_of(mount) for mount in spec.mounts],
        "health_checks": [health_check(check) for check in spec.health_checks],
    }


def _progress(found: Job, tasks: Sequence[Task]) -> shapes.Progress:
    """Of a job; tasks: of its latest launch, by rank."""
    return {
        "healthy": _healthy(tasks),
        "learnt_min_driver": found.learnt_min_driver,
        "submitted_at": found.submitted_at,
        "started_at": found.started_at,
        "ended_at": found.ended_at,
        "attempts": found.attempts,
        "launches": found.launches,
        "infrastructure_failures": found.infrastructure_failures,
        "kill_requested": found.kill_requested,
        "exit_code": found.exit_code,
        "message": found.message,
        "task_id": found.task_id,
        "task_ids": [task.id for task in tasks],
        "hostname": tasks[0].hostname if tasks else None,
        "hostnames": list(dict.fromkeys(task.hostname for task in tasks)),
        "gpu_ids": [gpu_id for task in tasks for gpu_id in task.gpus],
    }


def _healthy(tasks: Sequence[Task]) -> bool | None:
    """Of a job: no one task is ill, and of all it is known."""
    known = {task.healthy for task in tasks if not task.ended}
    return False if False in known else True if known == {True} else None


def health_check(found: HealthCheck) -> shapes.HealthCheck:
    """One check of a job, as it was asked for."""
    return {
        "protocol": found.protocol.value,
        "command": found.command,
        "path": found.path,
        "port": found.port,
        "grace_period_s": found.grace_period_s,
        "interval_s": found.interval_s,
        "timeout_s": found.timeout_s,
        "max_consecutive_failures": found.max_consecutive_failures,
        "delay_s": found.delay_s,
    }


def artifact(found: Artifact) -> shapes.Artifact:
    """One file that a job fetches, as it was asked for."""
    return {
        "uri": found.uri,
        "extract": found.extract,
        "executable": found.executable,
        "cache": found.cache,
        "dest_path": found.dest_path,
    }


def task(view: View, found: Task) -> shapes.Task:
    """A launch, or a node monitor."""
    owner = view.jobs.get(found.job_id) if found.job_id else None
    return {
        "id": found.id,
        "job_id": found.job_id,
        "name": _name(found, owner),
        "state": found.state.value,
        "hostname": found.hostname,
        "agent_id": found.agent_id,
        "attempt": found.attempt,
        "rank": found.rank,
        "ports": list(found.ports),
        "healthy": found.healthy,
        "preempted_for": found.preempted_for,
        "gpu_ids": list(found.gpus),
        "launched_at": found.launched_at,
        "started_at": found.started_at,
        "ended_at": found.ended_at,
        "message": found.message,
    }


def _name(found: Task, owner: Job | None) -> str:
    if owner is not None:
        return owner.spec.name
    listed = found.unknown.listed if found.unknown else None
    return "gpu-monitor" if found.job_id is None else (listed.name if listed else "") or found.id


def gpu(view: View, standing: Standing) -> shapes.Gpu:
    """A GPU, how it stands, and who holds it."""
    node, found, card = standing.node, standing.gpu, standing.card
    holder = view.holder(found.id)
    owner = view.jobs.get(holder.job_id) if holder and holder.job_id else None
    return {
        "uuid": found.id,
        "model": found.model,
        "memory_mib": found.memory_mib,
        "compute_capability": found.compute_capability,
        "minor": found.minor,
        "pci_bus_id": found.pci_bus_id,
        "numa_node": found.numa_node,
        "health": standing.health.value,
        "reason": standing.reason,
        "since": standing.since or None,
        "node_health": found.health.value,
        "node_reason": found.reason,
        "warnings": list(found.warnings),
        "drain": drain(standing.drain) if standing.drain else None,
        "reset": reset(card.reset) if card and card.reset else None,
        "hostname": node.hostname,
        "agent_id": node.id,
        "task_id": holder.id if holder else None,
        "job_id": owner.id if owner else None,
        "job_name": owner.spec.name if owner else None,
    }


def gpu_with_history(view: View, standing: Standing) -> shapes.GpuWithHistory:
    """The same with its history, oldest first."""
    changes = standing.card.changes if standing.card else ()
    return {**gpu(view, standing), "history": [transition(change) for change in changes]}


def transition(found: Transition) -> shapes.Transition:
    """A change of a GPU's health."""
    return {"at": found.at, "old": found.old.value, "new": found.new.value, "reason": found.reason}


def drain(found: Drain) -> shapes.Drain:
    """What keeps new work off a GPU or a node."""
    return {
        "target": found.target.value,
        "name": found.name,
        "reason": found.reason,
        "by": found.by,
        "since": found.since,
        "deadline_at": found.deadline_at,
    }


def reset(found: Reset) -> shapes.Reset:
    """A reset that is under way."""
    return {"request": found.request, "reason": found.reason, "by": found.by, "since": found.since}


def node(view: View, found: Node, gpus: Sequence[Standing], tasks: int) -> shapes.Node:
    """An agent with its GPUs and so many live tasks. It is up if its monitor has reported, or if it has no GPUs."""
    state = "up" if found.lost_at is None else "lost"
    drained = view.drain_of(found.hostname)
    said = found.inventory or Inventory(source="")
    if state == "up" and found.reported_at is None and found.monitor_launches:
        state = "unmonitored"
    return {
        "agent_id": found.id,
        "hostname": found.hostname,
        "state": state,
        "attributes": dict(found.attributes),
        "region": found.region,
        "zone": found.zone,
        **_counted(view, gpus),
        "driver_version": said.driver_version,
        "cuda_version": said.cuda_version,
        "volume": said.volume,
        "volume_problem": said.volume_problem or None,
        "isolation": said.isolation or None,
        "control_ports": said.control_ports or None,
        "drain": drain(drained) if drained else None,
        "source": said.source or None,
        "reported_at": found.reported_at,
        "tasks": tasks,
    }


def status(view: View, webui_url: str, version: str) -> shapes.Status:
    """The scheduler and a summary."""
    states = Counter(found.state.value for found in view.jobs.values())
    said = {n.hostname: n.inventory for n in view.nodes.values() if n.inventory}
    return {
        "framework_id": view.framework_id,
        "master_url": view.master_url,
        "connected": view.connected,
        "webui_url": webui_url,
        "started_at": view.started_at,
        "version": version,
        "jobs": states,
        **_counted(view, view.gpus()),
        "nodes": len(view.nodes),
        "tasks_unknown": len(view.unknown),
        "unsaved": view.unsaved or None,
        "drains": [drain(found) for found in view.drains],
        "isolation_off": sorted(host for host, found in said.items() if found.isolation == "off"),
        "control_ports_off": sorted(host for host, found in said.items() if found.control_ports == "off"),
    }


def _counted(view: View, gpus: Sequence[Standing]) -> shapes.Counted:
    return {
        "gpus_total": len(gpus),
        "gpus_used": sum(view.holder(s.gpu.id) is not None for s in gpus),
        "gpus_sick": sum(s.health not in (Health.OK, Health.DRAINED) for s in gpus),
        "gpus_drained": sum(s.health is Health.DRAINED for s in gpus),
    }


def why(found: Why) -> shapes.Why:
    """Why a job waits."""
    nearest = found.nearest
    return {
        "job_id": found.job_id,
        "state": found.state.value,
        "summary": found.summary,
        "queue_position": found.queue_position,
        "can_ever_run": found.can_ever_run,
        "tasks_fit": found.tasks_fit,
        "agents": len(found.nodes),
        "funnel": [
            {"reason": r.reason.value, "removed": r.removed, "left": r.left, "example": r.example}
            for r in found.funnel
        ],
        "nodes": [
            {"hostname": n.hostname, "agent_id": n.agent_id, "reasons": list(n.reasons)} for n in found.nodes
        ],
        "nearest": {"hostname": nearest.hostname, "missing": nearest.missing} if nearest else None,
        "estimate": estimate(found.estimate) if found.estimate else None,
    }


def estimate(found: Estimate) -> shapes.Estimate:
    """When a pending job may start."""
    return {"at": found.at, "basis": found.basis}


def waiting(found: Waiting) -> shapes.Waiting:
    """A pending job at its place."""
    job, spec, kept = found.job, found.job.spec, found.kept
    return {
        "position": found.position,
        "id": job.id,
        "name": spec.name,
        "queue": spec.queue,
        "priority": spec.priority,
        "effective_priority": found.effective_priority,
        "gpus": spec.gpus_in_all,
        "cpus": spec.cpus * spec.tasks,
        "mem_mib": spec.mem_mib * spec.tasks,
        "submitted_at": job.submitted_at,
        "reservation": {"hostname": kept.hostname, "gpu_ids": list(kept.gpus), "at": kept.at}
        if kept
        else None,
        "estimate": estimate(found.estimate),
    }


def queue(found: QueueUse) -> shapes.QueueUse:
    """A queue, its limit and what it holds."""
    return {
        "name": found.name,
        "limit_gpus": found.limit_gpus,
        "used_gpus": found.used_gpus,
        "waiting": found.waiting,
    }
