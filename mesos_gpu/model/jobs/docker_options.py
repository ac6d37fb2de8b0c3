"""What else may be asked of a container of the Docker Engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A limit of each of its processes (getrlimit(2)); -1: none."""

    name: str  # "memlock"
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """Empty: as it is without."""

    labels: Mapping[str, str] = field(default_factory=dict)
    shm_bytes: int = 0
    ulimits: tuple[Ulimit, ...] = ()
    hostname: str = ""
    directory: str = ""  # where it starts
    hosts: tuple[str, ...] = ()  # "name:address", for its /etc/hosts
    env: Mapping[str, str] = field(default_factory=dict)  # over that of its job
    dns: tuple[str, ...] = ()  # addresses of servers
    log_driver: str = ""  # of the engine, beside what is in the sandbox; "": none
    log_options: Mapping[str, str] = field(default_factory=dict)
    init: bool = False  # its first process reaps others
    stop_timeout_s: int | None = None  # of `docker stop`; the executor keeps to the job's grace
