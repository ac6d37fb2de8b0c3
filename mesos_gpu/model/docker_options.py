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
