"""Messages between scheduler and executor about a launch: its assignment, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.wires import SILENT
from mesos_gpu.model.shares.units import WHOLE

if TYPE_CHECKING:  # importing these would slow the start of every executor, but few tasks need them
    from mesos_gpu.model.jobs.mount import Mount
    from mesos_gpu.model.jobs.port import PortBinding
    from mesos_gpu.model.shares.share import Share

#: Port number that stands for a free port of the host, which the executor chooses for a job's only task.
FREE_PORT: Final = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A launch: its command and assigned GPUs. At most one of `command`, `argv` and `args` is set; with `args` or none,
    the image's own entrypoint runs."""

    job_id: str
    attempt: int
    command: str | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None  # None to run as the user of the executor
    gpus: tuple[GpuId, ...] = ()
    timeout_s: float | None = None
    kill_grace_s: float = 5.0
    image: str | None = None  # a Docker image; None to use the host's file system
    container_engine: str = "mesos"  # or "docker"; ignored without an image
    cpus: float = 0.0  # CPUs and memory from Mesos, which the task's limits are set to
    mem_mib: int = 0
    hosts: tuple[str, ...] = ()  # hosts of a gang's tasks by rank; it starts when all tasks are ready
    checks: str = ""  # health checks in the form of wire.mesos.checks; "" for none
    check: str = ""  # check whose result is only shown, in the form of `checks`; "" for none
    mounts: "tuple[Mount, ...]" = ()
    # Ports of a container on a bridge; None for the host's network.
    bindings: "tuple[PortBinding, ...] | None" = None
    docker: DockerOptions = field(default_factory=DockerOptions)
    pull: bool = False  # whether the image is fetched even if the host has it
    args: tuple[str, ...] = ()  # arguments of the image's entrypoint, instead of the image's own
    fetch: tuple[Mapping[str, object], ...] = ()  # files to fetch, each a CommandInfo.URI of Mesos
    disk_mib: int = 0  # limit of its sandbox; 0 for no limit
    log_limit_mib: int = 0  # limit of stdout and of stderr; 0 for no limit
    control_ports: tuple[ControlPort, ...] = ()  # known ports through which the cluster can be controlled
    user_is_default: bool = False  # whether the scheduler's operator named `user`
    control_access: tuple[str, ...] = ()  # services with control ports that it may reach
    share: "Share | None" = None  # its share of each of `gpus`; None for whole GPUs
    shared_compute_milli: int = WHOLE  # compute of a card that all its shares together may use
    strict: bool = False  # whether the limits of the share must hold against the task's own code
    #: Names of the secrets, each with its file relative to the sandbox, or "" to pass it as a variable.
    secrets: tuple[tuple[str, str], ...] = ()
    sealed_secrets: str = ""  # values of the secrets, encrypted for its host and this task
    secrets_problem: str = ""  # reason why their values are missing
    image_secret: str = ""  # path of the secret with the login for `image`, included in `sealed_secrets`
    image_secret_is_default: bool = False  # whether `image_secret` is from the job's queue, not from the job
    secret: str = ""  # key with which its executor authenticates updates; the task never gets it
    upload: str | None = None  # digest of its submitter's archive, as in `JobSpec.upload`
    scheduler_url: str = ""  # URL of the REST interface; "" if the executor does not need it
    # TCP ports of the host; the executor reports whether the task listens there.
    listens: tuple[int, ...] = ()
    cpu_limit: float | None = None  # CPUs that it never exceeds; None if it may use idle ones
    wire: int = SILENT  # message version that scheduler and executor use


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a launch, in the data of its last status update."""

    exit_status: int | None = None
    signal: int | None = None
    infrastructure: bool = False  # whether the infrastructure failed, so that no attempt is used up
    refused_gpus: tuple[GpuId, ...] = ()  # GPUs that another task still holds
    min_driver: str | None = None  # oldest driver for the image, such as "550", if the host's driver is older
    unhealthy: str = ""  # failed health check for which it was ended, with the reason; "" if none
    needs: str = ""  # requirement of the image behind `min_driver`, such as "CUDA 12.4 or newer"
