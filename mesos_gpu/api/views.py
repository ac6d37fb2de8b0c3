"""Nouns as the JSON of docs/reference/rest.md."""

from collections import Counter
from typing import Any

from mesos_gpu.api.service import View
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.job import Job
from mesos_gpu.model.node import Node
from mesos_gpu.model.task import Task
from mesos_gpu.model.why import Why


def job(view: View, found: Job) -> dict[str, Any]:
    """A job, with where its latest launch is."""
    spec = found.spec
    task = view.tasks.get(found.task_id) if found.task_id else None
    return {
        "id": found.id,
        "name": spec.name,
        "state": found.state.value,
        "version": found.version,
        "command": spec.command,
        "argv": list(spec.argv) or None,
        "cpus": spec.cpus,
        "mem_mib": spec.mem_mib,
        "gpus": spec.gpus,
        "gpu_model": list(spec.gpu_model),
        "env": dict(spec.env),
        "user": spec.user,
        "labels": dict(spec.labels),
        "max_attempts": spec.max_attempts,
        "timeout_s": spec.timeout_s,
        "kill_grace_s": spec.kill_grace_s,
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
        "hostname": task.hostname if task else None,
        "gpu_ids": list(task.gpus) if task else [],
    }


def task(view: View, found: Task) -> dict[str, Any]:
    """A launch, or a node monitor."""
    owner = view.jobs.get(found.job_id) if found.job_id else None
    return {
        "id": found.id,
        "job_id": found.job_id,
        "name": owner.spec.name if owner else "gpu-monitor",
        "state": found.state.value,
        "hostname": found.hostname,
        "agent_id": found.agent_id,
        "attempt": found.attempt,
        "gpu_ids": list(found.gpus),
        "launched_at": found.launched_at,
        "started_at": found.started_at,
        "ended_at": found.ended_at,
        "message": found.message,
    }


def gpu(view: View, node: Node, found: Gpu) -> dict[str, Any]:
    """A GPU, and who holds it."""
    holder = view.holder(found.id)
    owner = view.jobs.get(holder.job_id) if holder and holder.job_id else None
    return {
        "uuid": found.id,
        "model": found.model,
        "memory_mib": found.memory_mib,
        "minor": found.minor,
        "pci_bus_id": found.pci_bus_id,
        "numa_node": found.numa_node,
        "health": found.health.value,
        "reason": found.reason,
        "hostname": node.hostname,
        "agent_id": node.id,
        "task_id": holder.id if holder else None,
        "job_id": owner.id if owner else None,
        "job_name": owner.spec.name if owner else None,
    }


def node(view: View, found: Node, tasks: int) -> dict[str, Any]:
    """An agent with so many live tasks. It is up if its monitor has reported, or if it has no GPUs."""
    state = "up" if found.lost_at is None else "lost"
    if state == "up" and found.reported_at is None and found.monitor_launches:
        state = "unmonitored"
    return {
        "agent_id": found.id,
        "hostname": found.hostname,
        "state": state,
        "attributes": dict(found.attributes),
        "gpus_total": len(found.gpus),
        "gpus_used": sum(view.holder(g.id) is not None for g in found.gpus),
        "gpus_sick": sum(g.health is not Health.OK for g in found.gpus),
        "driver_version": found.inventory.driver_version if found.inventory else None,
        "source": found.inventory.source if found.inventory else None,
        "reported_at": found.reported_at,
        "tasks": tasks,
    }


def status(view: View, webui_url: str, version: str) -> dict[str, Any]:
    """The scheduler and a summary."""
    states = Counter(found.state.value for found in view.jobs.values())
    gpus = [g for n in view.nodes.values() for g in n.gpus]
    return {
        "framework_id": view.framework_id,
        "master_url": view.master_url,
        "connected": view.connected,
        "webui_url": webui_url,
        "started_at": view.started_at,
        "version": version,
        "jobs": states,
        "gpus_total": len(gpus),
        "gpus_used": sum(view.holder(g.id) is not None for g in gpus),
        "gpus_sick": sum(g.health is not Health.OK for g in gpus),
        "nodes": len(view.nodes),
    }


def why(found: Why) -> dict[str, Any]:
    """Why a job waits."""
    nearest = found.nearest
    return {
        "job_id": found.job_id,
        "state": found.state.value,
        "summary": found.summary,
        "queue_position": found.queue_position,
        "can_ever_run": found.can_ever_run,
        "nodes": [
            {"hostname": n.hostname, "agent_id": n.agent_id, "reasons": list(n.reasons)} for n in found.nodes
        ],
        "nearest": {"hostname": nearest.hostname, "missing": nearest.missing} if nearest else None,
    }
