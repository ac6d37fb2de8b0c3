"""Labels of our tasks in Mesos, by which a scheduler can adopt tasks that its state does not know; pure functions.

Everyone with access to the master can read labels, so they contain neither commands nor environments.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final

import msgspec

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.shares.share import Share, guarantee
from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.unknown import AskedShare, Label, Listed
from mesos_gpu.wire.mesos.sound import UNFIT, sound

JOB: Final = "mesos_gpu.job"
GPUS: Final = "mesos_gpu.gpus"
LAUNCH: Final = "mesos_gpu.launch"
ROLE: Final = "mesos_gpu.role"
#: For people who look at the master: labels of cover tasks and of tasks with shares.
GPU: Final = "mesos_gpu.gpu"
SHARE: Final = "mesos_gpu.share"
MEMORY: Final = "mesos_gpu.memory_mib"
GUARANTEE: Final = "mesos_gpu.guarantee"
_OURS: Final = (JOB, GPUS, LAUNCH, ROLE, GPU, SHARE, MEMORY, GUARANTEE)
_PID: Final = re.compile(r"[^@]*@(.+:[0-9]+)")  # pid of an agent in libprocess: slave(1)@10.0.0.1:5051


def monitor_labels() -> dict[str, str]:
    """Return the labels of a node monitor."""
    return {ROLE: "monitor"}


def cover_labels(gpu_id: GpuId) -> dict[str, str]:
    """Return the labels of a cover task, which holds a shared GPU."""
    return {ROLE: "cover", GPU: gpu_id}


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a job without names that are reserved for this package."""
    return {key: value for key, value in labels.items() if key not in _OURS}


def _share_labels(gpus: Sequence[GpuId], share: Share) -> dict[str, str]:
    given = guarantee(share)
    return {
        GPU: ",".join(gpus),
        SHARE: f"{share.compute_milli / WHOLE:g}",
        MEMORY: str(share.memory_mib),
        GUARANTEE: f"memory: {given.memory}, compute: {given.compute}, faults: {given.faults}",
    }


def launch_labels(
    task: Task,
    launch: int,
    spec: JobSpec,
    default_user: str | None,
    *,
    app_version: float | None = None,
    owner: str = "",
) -> dict[str, str]:
    """Return the labels of a launch. All are always set, so that labels of the job cannot stand in for them."""
    label = Label(
        job_id=JobId(str(task.job_id)),
        gpus=task.gpus,
        ports=task.ports,
        attempt=task.attempt,
        launch=launch,
        rank=task.rank,
        tasks=spec.tasks,
        launched_at=task.launched_at,
        app=spec.app,
        app_version=app_version,
        user=spec.user or default_user,
        queue=spec.queue,
        owner=owner,
        kill_grace_s=spec.kill_grace_s,
        sealed=task.sealed,
        share=task.share,
        asked=AskedShare(*(getattr(spec, each.name) for each in fields(AskedShare))) if task.share else None,
    )
    return {
        **(_share_labels(task.gpus, task.share) if task.share else {}),
        JOB: label.job_id,
        GPUS: ",".join(label.gpus),
        LAUNCH: msgspec.json.encode(label).decode(),
        ROLE: "job",
    }


def share_fields(label: Label) -> dict[str, Any]:
    """Return the share that the label's job requests, by field name; the assigned share if an older label lacks it."""
    share = label.share
    if share is None:
        return {}
    if label.asked is None:
        most_mib = share.memory_max_mib if share.memory_max_mib > share.memory_mib else None
        pct = max(share.compute_milli // PER_PERCENT, 1)
        return {"gpu_compute_pct": pct, "gpu_memory_mib": share.memory_mib, "gpu_memory_max_mib": most_mib}
    return asdict(label.asked)


def label_of(labels: Mapping[str, str]) -> Label | None:
    """Return the launch described by a task's labels; None without readable labels."""
    try:
        label = sound(msgspec.json.decode(labels[LAUNCH], type=Label))
        gpus = tuple(GpuId(gpu) for gpu in labels.get(GPUS, "").split(",") if gpu)
    except (msgspec.DecodeError, *UNFIT):
        return None
    return replace(label, gpus=gpus) if labels.get(JOB) == label.job_id else None


def listed_from_json(
    tasks: Iterable[Mapping[str, Any]],
    agents: Iterable[Mapping[str, Any]],
    tell: Callable[[str], None] = lambda _: None,
) -> list[Listed]:
    """Parse the master's `/tasks` and `/slaves`; return each task once, in its latest state.

    Args:
        tasks: Entries of `/tasks`.
        agents: Entries of `/slaves`.
        tell: Gets a message for each entry that cannot be read, which is left out.
    """
    hosts = {agent["id"]: agent for agent in agents if _is_named(agent)}
    listed = {}
    for task in tasks:
        try:
            listed[task["id"]] = sound(_listed(task, hosts))
        except UNFIT as error:
            tell(f"a task in the master's list is ignored as it cannot be read: {error!r}: {task!r:.500}")
    return list(listed.values())


def _is_named(agent: Any) -> bool:
    return isinstance(agent, dict) and isinstance(agent.get("id"), str)


def _listed(task: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> Listed:
    """Return a task of the master's list; `hosts` are agents by id."""
    labels = {label["key"]: label.get("value", "") for label in task.get("labels", ())}
    agent = hosts.get(task["slave_id"], {})
    place = _PID.fullmatch(agent.get("pid", ""))
    resources = task.get("resources", {})
    return Listed(
        task_id=TaskId(task["id"]),
        agent_id=AgentId(task["slave_id"]),
        state=task["state"],
        name=task.get("name", ""),
        hostname=agent.get("hostname", ""),
        agent_url=f"http://{place[1]}" if place else "",
        cpus=float(resources.get("cpus", 0.0)),
        mem_mib=int(resources.get("mem", 0)),
        label=label_of(labels),
        labels={key: value for key, value in labels.items() if key not in _OURS},
    )
