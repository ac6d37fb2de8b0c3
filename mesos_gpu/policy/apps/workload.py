"""Job of one instance of a Marathon app, and the fields of an app that cannot be honoured. Pure.

The job is made of the app's fields `id`, `cmd`, `args`, `cpus`, `mem`, `disk`, `gpus`, `gpu`, `constraints`, `fetch`,
`container.type`, `container.docker` (`image`, `forcePullImage`, `parameters`), `container.volumes` except external
ones, `env`, `secrets`, `labels`, `user`, `taskKillGracePeriodSeconds`, and health checks by executors.
`portDefinitions`, `portMappings` and `requirePorts` are honoured at its launch (`policy.apps.ports`,
`policy.apps.task_env`). Of `env` the executor ignores MESOS_* and the variables that choose GPUs.

Instances, strategies, backoff, dependencies, readiness and the scheduler's health checks are handled by the controller
of apps. Labels and protocols of ports are passed to Mesos, for clients that look services up there.

Everything else is refused by `unsupported`, or reported by `without_effect` if an app without it runs as its user
expects.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.model.apps.app import (
    PASSED_ON,
    App,
    Container,
    DockerImage,
    EngineType,
    GpuOptions,
    LinuxInfo,
    LostBehavior,
    NetworkMode,
    ResourceLimits,
    Volume,
    VolumeMode,
)
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.job import Engine, JobSpec
from mesos_gpu.model.jobs.mount import Mount, persistent_of, unfit
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.nodes.driver import CUDA_LABEL, branch_for
from mesos_gpu.model.resources import AMOUNTS
from mesos_gpu.policy.apps.docker_options import CHOOSES_GPUS, GPUS_HOLD, GPUS_INSTEAD, read_parameters
from mesos_gpu.policy.apps.ports import networks_as_host, wishes_of
from mesos_gpu.policy.apps.secrets import image_secret_of, problems_of, uses_of
from mesos_gpu.policy.apps.shown_check import shown_check
from mesos_gpu.policy.apps.task_env import app_env, own_env
from mesos_gpu.policy.apps.task_ids import MAX_OF_APP, hostname_of

KILL_GRACE_S: Final = 5.0  # default if the app sets none; Mesos' default (--executor_shutdown_grace_period)
ANY_ROLE: Final = "*"
_NOT_JOINED: Final = (
    'the network {0} is not joined; set [{{"mode": "container/bridge"}}] with a container of type DOCKER and an '
    'image, or [{{"mode": "host"}}] and portDefinitions for portMappings, or have the operator start the scheduler '
    "with --network-as-host {0}"
)
_PARAMETERS: Final = "container.docker.parameters"
#: Schemes of `hadoop fs`, which Mesos' fetcher runs.
_HADOOP: Final = ("hdfs://", "hftp://", "s3://", "s3n://", "s3a://")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Field of an app that cannot be honoured, or has no effect.

    Attributes:
        field: Path of the field in Marathon's JSON, with dots, as "container.volumes.0".
        why: Reason, with the remedy if known.
    """

    field: str
    why: str

    def __str__(self) -> str:
        """Return the problem as a message."""
        return f"{self.field}: {self.why}"


def job_of(app: App, gpu: GpuOptions, *, version: str, permits: Permits | None = None) -> JobSpec | str:
    """Return the job of one instance of an app, or a message why it cannot be run.

    Args:
        app: App that was validated.
        gpu: GPU options of the app, including those of its labels.
        version: Version of the app, for its environment.
        permits: Permissions by the operator; None if everything is allowed.
    """
    reasons = unsupported(app, gpu, permits=permits)
    return "; ".join(map(str, reasons)) if reasons else _job(app, gpu, version)


def unsupported(app: App, gpu: GpuOptions, *, permits: Permits | None = None) -> tuple[Unsupported, ...]:
    """Return everything that prevents an app from running; arguments as in `job_of`."""
    parts = _Parts(app, gpu)
    problems = [Unsupported(field, why) for field, applies, why in _REFUSED if applies(parts)]
    problems += (Unsupported(f"{_PARAMETERS}.{i}", why) for i, why in parts.parameters.refused)
    problems += (Unsupported(f"container.volumes.{parts.mounted[i]}", why) for i, why in unfit(parts.mounts))
    problems += (Unsupported(field, why) for field, why in problems_of(app))
    problems += (
        Unsupported(f"fetch.{i}", artifact.problem)
        for i, artifact in enumerate(app.fetch)
        if artifact.problem
    )
    return tuple(problems) if permits is None else (*problems, *_unpermitted(parts, permits))


def without_effect(app: App, gpu: GpuOptions) -> tuple[Unsupported, ...]:
    """Return the fields of an app that are accepted but change nothing; arguments as in `job_of`."""
    parts = _Parts(app, gpu)
    fields = [Unsupported(field, why) for field, applies, why in _WITHOUT_EFFECT if applies(parts)]
    has_gpus = GPUS_HOLD if app.gpus else GPUS_INSTEAD
    fields += (Unsupported(f"env.{name}", has_gpus) for name in CHOOSES_GPUS if name in app.env)
    fields += (Unsupported(f"{_PARAMETERS}.{i}", why) for i, why in parts.parameters.without_effect)
    fields += (
        Unsupported(f"fetch.{i}", "an agent without Hadoop's client cannot fetch it; the launch fails there")
        for i, artifact in enumerate(app.fetch)
        if artifact.uri.lower().startswith(_HADOOP)
    )
    return tuple(fields)


def _unpermitted(parts: "_Parts", permits: Permits) -> Iterator[Unsupported]:
    """Yield the fields of an app that the operator does not permit."""
    app = parts.app
    for name in dict.fromkeys(networks_as_host(app)):
        if name not in permits.host_networks:
            yield Unsupported("networks", _NOT_JOINED.format(name))
    for field, why in (
        ("user", permits.problem_of_user(app.user, has_image=parts.image is not None)),
        ("gpu.control_access", permits.problem_of_controls(parts.gpu.control_access, app.id, app.user)),
        ("secrets", permits.problem_of_secrets([*uses_of(app), *filter(None, [image_secret_of(app)])])),
    ):
        if why:
            yield Unsupported(field, why)


def _job(app: App, gpu: GpuOptions, version: str) -> JobSpec:
    """Return the job of one instance of an app that is supported."""
    parts = _Parts(app, gpu)
    grace_s = app.task_kill_grace_s
    return JobSpec(
        name=hostname_of(app.id),
        command=app.cmd or None,
        argv=app.args if parts.image is None else (),
        args=app.args if parts.image is not None else (),
        **_amounts(app),
        gpu_milli=app.part_milli,
        env={**app_env(app, version=version), **own_env(app), **parts.options.env},
        user=app.user,
        labels=app.labels,
        max_attempts=1,  # the app's controller starts another instance, after its backoff
        kill_grace_s=KILL_GRACE_S if grace_s is None else float(grace_s),
        image=parts.image,
        container_engine=Engine.DOCKER if parts.on_docker else Engine.MESOS,
        app=app.id,  # distinct from apps of the job API, whose names have no slash
        constraints=app.constraints,
        health_checks=tuple(check for check in app.health_checks if check.protocol.by_executor),
        ports=wishes_of(app),
        fetch=app.fetch,
        mounts=parts.mounts,
        cpu_limit=parts.cpu_limit,
        bridge=parts.on_bridge,
        docker=parts.options,
        pull=parts.pull,
        secrets=tuple(use.secret for use in uses_of(app)),
        image_secret=image_secret_of(app) if parts.image is not None else None,
        **_passed_on(parts),
    )


def _amounts(app: App) -> dict[str, Any]:
    """Return the amounts that the app requests; those that are not divisible are rounded up, as a job has whole MiB."""
    amounts = {amount: getattr(app, amount.name) for amount in AMOUNTS}
    return {
        amount.name: value if amount.divisible else max(amount.least, math.ceil(value))
        for amount, value in amounts.items()
    }


def _passed_on(parts: "_Parts") -> dict[str, Any]:
    """Return the job fields from the app's GPU options, and the driver that its label requires."""
    options = {field.name: getattr(parts.gpu, name) for name, field in PASSED_ON.items()}
    return {**options, "min_driver": parts.gpu.min_driver or branch_for(parts.cuda)}


class _Parts:
    """Parts of an app, with defaults for those that it leaves out."""

    def __init__(self, app: App, gpu: GpuOptions) -> None:
        self.app, self.gpu = app, gpu
        self.container = app.container or Container(EngineType.MESOS)
        self.docker = self.container.docker or DockerImage("")
        self.image = self.docker.image or None
        self.linux = self.container.linux_info or LinuxInfo()
        network = "bridge" if self.on_bridge else "host"
        self.parameters = read_parameters(self.docker.parameters, has_gpus=app.gpus > 0, network=network)
        self.options: DockerOptions = self.parameters.options
        self.limits = app.resource_limits or ResourceLimits()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Volumes of the app, except those of secrets."""
        return tuple(_mount(volume) for volume in self.container.volumes if volume.secret is None)

    @property
    def cpu_limit(self) -> float | None:
        """Limit of a task's CPU use; None if it may use as many CPUs as are idle."""
        limit = self.limits.cpus
        return None if limit is None or math.isinf(limit) else limit

    @property
    def mounted(self) -> tuple[int, ...]:
        """Indexes in the app's volumes of the entries of `mounts`."""
        return tuple(i for i, volume in enumerate(self.container.volumes) if volume.secret is None)

    @property
    def mounts_of_sandbox(self) -> bool:
        """Whether a volume names a path of the sandbox that is not in a persistent volume of the app."""
        persistent = {mount.target for mount in persistent_of(self.mounts)}
        return any(
            mount.source[:1] != "/" and not mount.volume_mib and mount.source not in persistent
            for mount in self.mounts
        )

    @property
    def cuda(self) -> str:
        """CUDA version that the app's label requires; "" without one, or if the driver is given."""
        applies = self.app.gpus > 0 and self.gpu.min_driver is None
        return self.app.labels.get(CUDA_LABEL, "").strip() if applies else ""

    @property
    def pull(self) -> bool:
        """Whether the image is fetched for each launch; an image named by digest never changes."""
        return self.docker.force_pull_image and "@" not in self.docker.image

    @property
    def on_docker(self) -> bool:
        """Whether the Docker Engine runs the task."""
        return self.image is not None and self.container.type is EngineType.DOCKER

    @property
    def on_bridge(self) -> bool:
        """Whether the task is on the bridge of the Docker Engine."""
        return self.on_docker and any(network.mode is NetworkMode.BRIDGE for network in self.app.networks)

    def checks_inside(self, *checks: HealthCheck | None) -> bool:
        """Return whether an executor's check names a port of the container that cannot be reached from its host."""
        mapped = {mapping.container_port for mapping in self.container.port_mappings or ()}
        checked = {check.port for check in checks if check is not None and check.protocol.by_executor} - {
            None
        }
        return self.on_bridge and not checked <= mapped

    @property
    def leaves_out_a_role(self) -> bool:
        """Whether the app excludes some of the resources that Mesos offers."""
        app = self.app
        used = {ANY_ROLE, app.role or ANY_ROLE}
        return bool(app.accepted_resource_roles) and not used <= set(app.accepted_resource_roles)


def _mount(volume: Volume) -> Mount:
    """Return a task's mount for a volume; a persistent one has its path as its id until an instance is made."""
    read_only = volume.mode is VolumeMode.RO
    if volume.persistent is not None:
        path = volume.container_path
        return Mount(path, path, read_only, volume_mib=volume.persistent.size_mib)
    return Mount(volume.host_path or "", volume.container_path, read_only)


_REFUSED: Final[tuple[tuple[str, Callable[[_Parts], bool], str], ...]] = (
    (
        "id",
        lambda p: len(p.app.id) - 1 > MAX_OF_APP,
        f"it is part of task ids, whose length Mesos limits; use {MAX_OF_APP} characters at most",
    ),
    (
        "cmd",
        lambda p: not (p.app.cmd or p.app.args or p.image),
        "there is nothing to run; set cmd, args or container.docker.image",
    ),
    (
        "healthChecks",
        lambda p: p.checks_inside(*p.app.health_checks),
        "one of a type that begins with MESOS_ has a port of the container that no portMapping leads to; set its "
        "portIndex",
    ),
    (
        "container.volumes",
        lambda p: bool(p.image) and not p.on_docker and p.mounts_of_sandbox,
        "a hostPath in the sandbox is not there before Mesos starts an image; use it where it is, below "
        "$MESOS_SANDBOX, or the container type DOCKER",
    ),
    (
        "container.docker.privileged",
        lambda p: p.docker.privileged,
        "a privileged container could use every GPU of its host; leave it out",
    ),
    (
        "container.linuxInfo.seccomp",
        lambda p: p.linux.seccomp is not None,
        "profiles are not passed on; leave it out",
    ),
    (
        "container.linuxInfo.ipcInfo",
        lambda p: p.linux.ipc is not None,
        "the size of shared memory cannot be set; leave it out",
    ),
    (
        "resourceLimits",
        lambda p: p.limits.mem_mib is not None,
        "a task gets the memory that it asks for and no more; leave out mem, and ask for the most it needs by mem of "
        "the app",
    ),
    (
        "check",
        lambda p: p.checks_inside(shown_check(p.app)),
        "it names a container port without a portMapping; set its portIndex",
    ),
    ("tty", lambda p: p.app.tty is True, "tasks have no terminal; leave it out"),
    (
        f"labels.{CUDA_LABEL}",
        lambda p: bool(p.cuda) and branch_for(p.cuda) is None,
        "is not a CUDA version with a known driver; set gpu.min_driver, or leave it out",
    ),
)
_WITHOUT_EFFECT: Final[tuple[tuple[str, Callable[[_Parts], bool], str], ...]] = (
    (
        "acceptedResourceRoles",
        lambda p: p.leaves_out_a_role,
        "all that Mesos offers to the scheduler's role is used; choose agents with constraints",
    ),
    (
        "networks",
        lambda p: bool(networks_as_host(p.app)),
        "the tasks are in the host's network instead, with the ports of portMappings: --network-as-host",
    ),
    (
        "executorResources",
        lambda p: p.app.executor_resources is not None,
        "every task has mesos-gpu's executor, which needs no resources of its own",
    ),
    (
        "residency.taskLostBehavior",
        lambda p: p.app.residency is not None and p.app.residency.task_lost_behavior is LostBehavior.RELAUNCH,
        "an instance waits for the node of its volumes; to start it elsewhere, without its data: DELETE of its task "
        "with wipe=true",
    ),
    (
        "role",
        lambda p: p.app.role not in (None, ANY_ROLE),
        "all apps have the scheduler's role: mesos-gpu scheduler --role",
    ),
)
