"""What an executor is told, and how it says a launch ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.wires import SILENT
from mesos_gpu.model.shares.units import WHOLE

if TYPE_CHECKING:  # each costs an executor what only one of a task that has it need pay
    from mesos_gpu.model.jobs.mount import Mount
    from mesos_gpu.model.jobs.port import PortBinding
    from mesos_gpu.model.shares.share import Share

#: Port in the environment of a job's only task, in whose place its executor puts a free port of the host.
FREE_PORT: Final = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A launch: its command, and the GPUs it is granted. At most one of `command`, `argv` and `args` is set; with
    `args` or none, the image's own entrypoint runs."""

    job_id: str
    attempt: int
    command: str | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None  # None: the executor's own user, without a change
    gpus: tuple[GpuId, ...] = ()
    timeout_s: float | None = None
    kill_grace_s: float = 5.0
    image: str | None = None  # a Docker image; None: the host's file system
    container_engine: str = "mesos"  # or "docker"; of no meaning without an image
    cpus: float = 0.0  # CPUs and memory that Mesos gives the task, for the program that limits the task
    mem_mib: int = 0
    hosts: tuple[
        str, ...
    ] = ()  # of a gang's members, by rank: it starts when it is told that all are in their places
    checks: str = ""  # health checks, as wire.checks has them; "": none
    check: str = ""  # the check whose result is only shown, in the same form; "": none
    mounts: "tuple[Mount, ...]" = ()
    bindings: "tuple[PortBinding, ...] | None" = None  # of a container on a bridge; None: the host's network
    docker: DockerOptions = field(default_factory=DockerOptions)
    pull: bool = False  # the image is fetched again, whether it is there or not
    args: tuple[str, ...] = ()  # of the image's entrypoint, in place of the image's own
    fetch: tuple[Mapping[str, object], ...] = ()  # each a CommandInfo.URI of Mesos
    disk_mib: int = 0  # that its sandbox may hold; 0: all that there is
    log_limit_mib: int = 0  # that each of stdout and stderr may keep; 0: all
    control_ports: tuple[ControlPort, ...] = ()  # that command the cluster, as far as the scheduler knows
    user_is_default: bool = False  # whether the scheduler's operator named `user`
    control_access: tuple[str, ...] = ()  # of the services that command the cluster, those that it may reach
    share: "Share | None" = None  # what it is granted of each of `gpus`; None: all of them
    shared_compute_milli: int = WHOLE  # of the compute of a card, what all its shares together may have
    strict: bool = False  # whether nothing in the task may go round what keeps it to its share
    #: Of each secret its name and, below its sandbox, its file; "": it is a variable.
    secrets: tuple[tuple[str, str], ...] = ()
    sealed_secrets: str = ""  # their values, sealed to its host for this task
    secrets_problem: str = ""  # why there are none
    image_secret: str = ""  # path of the secret with the login for `image`, which is sealed among them
    image_secret_is_default: bool = False  # whether the job's queue named it, and not the job
    secret: str = ""  # what its executor seals updates with; the task never gets it
    upload: str | None = None  # its submitter's archive, by digest; see `JobSpec.upload`
    scheduler_url: str = ""  # where an executor finds the REST interface; "": nothing of this task needs it
    listens: tuple[
        int, ...
    ] = ()  # TCP ports of the host; the executor reports whether the task listens there
    cpu_limit: float | None = None  # CPUs that it never exceeds; None if it may use idle ones
    wire: int = SILENT  # the version of messages in which the two speak


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended, in the data of its last status."""

    exit_status: int | None = None
    signal: int | None = None
    infrastructure: bool = False  # not the job's fault: no attempt is used up
    refused_gpus: tuple[GpuId, ...] = ()  # another claim holds them
    min_driver: str | None = (
        None  # the host's driver is too old for the image: the oldest that will do, "550"
    )
    unhealthy: str = ""  # its health checks failed too often, and so it was ended: which, and why
    needs: str = ""  # what the image says of it, "CUDA 12.4 or newer"
