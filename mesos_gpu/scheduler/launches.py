"""Conversion of the engine's launches to Mesos' TaskInfo. Pure functions."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from mesos_gpu.adapters.secrets.deliveries import NO_SECRETS, Sealed
from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.wires import WIRE
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.apps.healthcheck import of_executor
from mesos_gpu.policy.apps.ports import bindings_of
from mesos_gpu.policy.apps.task_ids import launch_of
from mesos_gpu.wire.mesos import assignment, checks
from mesos_gpu.wire.mesos.labels import cover_labels, launch_labels, monitor_labels, own_labels
from mesos_gpu.wire.mesos.seal import secret_for
from mesos_gpu.wire.mesos.v1 import discovery_to_json, resources_to_json, task_info, task_of

#: Fields of a job's request whose values differ in the executor's assignment.
_OTHERWISE: Final = {
    "env", "user", "gpus", "container_engine", "fetch", "control_access", "secrets", "image_secret"
}  # fmt: skip
_COPIED: Final = tuple(
    {field.name for field in fields(JobSpec)}
    & {field.name for field in fields(assignment.Assignment)} - _OTHERWISE
)


def to_task_info(
    launch: LaunchTask,
    settings: Settings,
    *,
    control_ports: Sequence[ControlPort] = (),
    key: bytes = b"",
    sealed: Sealed = NO_SECRETS,
    check: HealthCheck | None = None,
) -> dict[str, Any]:
    """Return the TaskInfo of a job's launch, of a node monitor, or of a cover task of a shared card.

    Args:
        launch: Task to launch, with the request of its job.
        settings: Settings of the operator.
        control_ports: Control ports of the cluster, which the task must not reach.
        key: Key from which the secrets of sealed launches are derived.
        sealed: Sealed values of the job's secrets.
        check: Check of the job's app whose result is only displayed.
    """
    task, spec = launch.task, launch.spec
    secret = secret_for(key, task.id) if task.sealed else ""
    if task.covers is not None:
        return _cover(launch, task.covers, secret)
    if spec is None:
        return _monitor(launch, settings, secret)
    assigned = replace(
        _assignment(launch, spec, settings, secret, control_ports, sealed), check=_check(launch, spec, check)
    )
    return task_info(
        task_id=task.id,
        agent_id=task.agent_id,
        name=spec.name,
        data=assignment.encode(assigned),
        resources=launch.resources,
        ports=launch.ports,
        executor_id=task.executor_id,
        executor_name=f"mesos-gpu executor of {spec.name}",
        executor_command=settings.programs.executor_command,
        executor_resources=launch.executor_resources,
        executor_env=settings.programs.executor_env,
        discovery=discovery_to_json(spec.name, spec.ports, task.ports),
        labels={**own_labels(spec.labels), **_labels(launch, spec, settings)},
        kill_grace_s=spec.kill_grace_s,
    )


def _cover(launch: LaunchTask, gpu_id: GpuId, secret: str) -> dict[str, Any]:
    """Return the TaskInfo of a cover task. All tasks of a keeper need the ExecutorInfo it was started with."""
    task = launch.task
    return task_of(
        json.loads(task.keeper),
        task_id=task.id,
        agent_id=task.agent_id,
        name=f"shared-{gpu_id}",
        data=json.dumps({"secret": secret}).encode(),
        resources=resources_to_json(launch.resources),
        labels=cover_labels(gpu_id),
    )


def _monitor(launch: LaunchTask, settings: Settings, secret: str) -> dict[str, Any]:
    """Return the TaskInfo of a node monitor."""
    task = launch.task
    data = {"report_interval_s": settings.programs.report_interval_s, "secret": secret, "wire": WIRE}
    return task_info(
        task_id=task.id,
        agent_id=task.agent_id,
        name="gpu-monitor",
        data=json.dumps(data).encode(),
        resources=launch.resources,
        executor_id=task.executor_id,
        executor_name="mesos-gpu node monitor",
        executor_command=settings.programs.monitor_command,
        executor_resources=launch.executor_resources,
        executor_env=settings.programs.executor_env,
        labels=monitor_labels(),
        kill_grace_s=None,
    )


def _assignment(
    launch: LaunchTask,
    spec: JobSpec,
    settings: Settings,
    secret: str,
    control_ports: Sequence[ControlPort],
    sealed: Sealed,
) -> assignment.Assignment:
    """Return the assignment that a job's executor receives."""
    task = launch.task
    bindings = bindings_of(spec.ports, task.ports) if spec.bridge else None
    return assignment.Assignment(
        **{name: getattr(spec, name) for name in _COPIED},
        job_id=str(task.job_id),
        attempt=task.attempt,
        env={**spec.env, **launch.env},
        user=spec.user or settings.programs.default_user,
        gpus=task.gpus,
        share=task.share,
        strict=task.share is not None and (spec.isolation or settings.placing.isolation) is Isolation.STRICT,
        shared_compute_milli=round(settings.placing.gpu_compute_overcommit * WHOLE),
        container_engine=spec.container_engine.value,
        hosts=launch.hosts,
        checks=checks.encode(of_executor(spec.health_checks, task.ports, bindings or ())),
        bindings=bindings,
        fetch=tuple(artifact.as_uri() for artifact in spec.fetch),
        log_limit_mib=settings.programs.log_limit_mib,
        control_access=_controls(spec, settings),
        secret=secret,
        secrets=tuple([(secret_ref.name, secret_ref.file) for secret_ref in spec.secrets]),
        sealed_secrets=sealed.message,
        secrets_problem=sealed.problem,
        image_secret=launch.image_secret,
        image_secret_is_default=bool(launch.image_secret) and spec.image_secret is None,
        control_ports=(*settings.programs.control_ports, *control_ports),
        user_is_default=spec.user in (None, settings.programs.default_user),
        scheduler_url=settings.programs.scheduler_url if spec.upload else "",
        listens=launch.listens,
        wire=launch.wire,
    )


def _check(launch: LaunchTask, spec: JobSpec, check: HealthCheck | None) -> str:
    """Return the encoded check whose result is only displayed, with its port on this task; "" without a check."""
    if check is None:
        return ""
    ports = launch.task.ports
    return checks.encode(of_executor((check,), ports, bindings_of(spec.ports, ports) if spec.bridge else ()))


def _labels(launch: LaunchTask, spec: JobSpec, settings: Settings) -> dict[str, str]:
    task = launch.task
    number = launch_of(JobId(str(task.job_id)), task.id)
    return launch_labels(
        task, number, spec, settings.programs.default_user, app_version=launch.app_version, owner=launch.owner
    )


def _controls(spec: JobSpec, settings: Settings) -> tuple[str, ...]:
    """Return the requested control access that the operator still allows; the job may predate the current settings."""
    own = spec.app if spec.app and spec.app.startswith("/") else spec.name
    permits = Permits(
        control_access=settings.programs.control_access, default_user=settings.programs.default_user
    )
    allowed = permits.controls_of(own, spec.user)
    return tuple(control.value for control in spec.control_access if control in allowed)
