"""Further options of containers in the Docker Engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A resource limit of each process in the container (getrlimit(2)); -1 for no limit."""

    name: str  # such as "memlock"
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """Options of a container in the Docker Engine. Empty values leave the engine's default."""

    labels: Mapping[str, str] = field(default_factory=dict)
    shm_bytes: int = 0
    ulimits: tuple[Ulimit, ...] = ()
    hostname: str = ""
    directory: str = ""  # working directory
    hosts: tuple[str, ...] = ()  # "name:address", entries of its /etc/hosts
    env: Mapping[str, str] = field(default_factory=dict)  # overrides that of its job
    dns: tuple[str, ...] = ()  # addresses of DNS servers
    log_driver: str = ""  # log driver of the engine, in addition to the files in the sandbox; "" for none
    log_options: Mapping[str, str] = field(default_factory=dict)
    init: bool = False  # whether its first process reaps orphans
    # Time limit of `docker stop`; the executor uses the grace period of the job instead.
    stop_timeout_s: int | None = None
