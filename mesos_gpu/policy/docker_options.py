"""Which options of docker run an app may set: those that give it nothing of its host. Pure.

Source: Docker's reference of `docker run` and its forms.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.model.app import DockerParameter
from mesos_gpu.model.docker_options import DockerOptions, Ulimit

_SIZE: Final = re.compile(r"(\d{1,18})([bkmgt]?)b?", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ULIMIT: Final = re.compile(r"([a-z]+)=(-1|\d{1,18})(?::(-1|\d{1,18}))?")
#: Not nice, rtprio and rttime: they would take CPU from other tasks.
_ULIMITS: Final = ("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "sigpending",
                   "stack")  # fmt: skip
_HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_DIRECTORY: Final = re.compile(r"/[^\x00]*")


def options_of(parameters: Sequence[DockerParameter]) -> DockerOptions | str:
    """What they come to; a string says, for people, what cannot be passed on."""
    found = DockerOptions()
    for each in parameters:
        read = _READ.get(each.key)
        if read is None:
            return f"{each.key!r} is not passed on, only {', '.join(_READ)}; leave it out"
        after = read(found, each.value)
        if after is None:
            return f"{each.key} cannot be {each.value!r}; write it as docker run has it"
        found = after
    return found


def _label(found: DockerOptions, value: str) -> DockerOptions | None:
    name, _, text = value.partition("=")
    return replace(found, labels={**found.labels, name: text}) if name else None


def _shm_size(found: DockerOptions, value: str) -> DockerOptions | None:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) << _SHIFTS[match[2].lower()] if match else 0
    return replace(found, shm_bytes=size) if 0 < size < 1 << 63 else None


def _ulimit(found: DockerOptions, value: str) -> DockerOptions | None:
    match = _ULIMIT.fullmatch(value)
    if match is None or match[1] not in _ULIMITS:
        return None
    soft, hard = int(match[2]), int(match[3] or match[2])
    if hard != -1 and not 0 <= soft <= hard:
        return None
    return replace(found, ulimits=(*found.ulimits, Ulimit(match[1], soft, hard)))


def _hostname(found: DockerOptions, value: str) -> DockerOptions | None:
    return replace(found, hostname=value) if _HOSTNAME.fullmatch(value) else None


def _workdir(found: DockerOptions, value: str) -> DockerOptions | None:
    return replace(found, directory=value) if _DIRECTORY.fullmatch(value) else None


_READ: Final[dict[str, Callable[[DockerOptions, str], DockerOptions | None]]] = {
    "hostname": _hostname,
    "label": _label,
    "shm-size": _shm_size,
    "ulimit": _ulimit,
    "workdir": _workdir,
}
