"""Which options of docker run an app may set: those that change the inside of its own container only. Pure.

Source: Docker's reference of `docker run` and its forms.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

from mesos_gpu.model.apps.app import DockerParameter
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit

_SIZE: Final = re.compile(r"(\d{1,18})([bkmgt]?)b?", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ULIMIT: Final = re.compile(r"([a-z]+)=(-1|\d{1,18})(?::(-1|\d{1,18}))?")
#: Not nice, rtprio and rttime: they would take CPU from other tasks.
_ULIMITS: Final = ("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "sigpending",
                   "stack")  # fmt: skip
_HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_DIRECTORY: Final = re.compile(r"/[^\x00]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT_HERE: Final = ("json-file", "local", "none")  # drivers that send nothing to a service of the host
_LOG_SIZES: Final = re.compile(r"\d{1,6}[kmg]")
_LOG_OPTIONS: Final = {
    "max-size": _LOG_SIZES,
    "max-file": re.compile(r"[1-9]\d?"),
    "compress": re.compile("true|false"),
}
_MOST_LOG: Final = 1 << 30  # bytes: they are on the engine's disk, which no limit of the task's counts
_LOG_BOUNDS: Final = {"max-size": "10m", "max-file": "1"}  # else they fill the engine's disk


def options_of(parameters: Sequence[DockerParameter]) -> DockerOptions | str:
    """What they come to; a string says, for people, what cannot be passed on."""
    options = DockerOptions()
    for each in parameters:
        read = _READ.get(each.key)
        if read is None:
            return f"{each.key!r} is not passed on, only {', '.join(_READ)}; leave it out"
        after = read(options, each.value)
        if after is None:
            return f"{each.key} cannot be {each.value!r}; write it as docker run has it"
        options = after
    if not (options.log_driver or options.log_options):
        return options
    driver = options.log_driver or "json-file"
    bounded = {} if driver == "none" else {**_LOG_BOUNDS, **options.log_options}
    if bounded and _kept(bounded["max-size"], bounded["max-file"]) > _MOST_LOG:
        return "log-opt: max-size times max-file is more than 1 GiB; ask for less"
    return replace(options, log_driver=driver, log_options=bounded)


def _kept(size: str, files: str) -> int:
    """Bytes of the engine's disk."""
    return (int(size[:-1]) << _SHIFTS[size[-1]]) * int(files)


def _label(options: DockerOptions, value: str) -> DockerOptions | None:
    name, _, text = value.partition("=")
    return replace(options, labels={**options.labels, name: text}) if name else None


def _shm_size(options: DockerOptions, value: str) -> DockerOptions | None:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) << _SHIFTS[match[2].lower()] if match else 0
    return replace(options, shm_bytes=size) if 0 < size < 1 << 63 else None


def _ulimit(options: DockerOptions, value: str) -> DockerOptions | None:
    match = _ULIMIT.fullmatch(value)
    if match is None or match[1] not in _ULIMITS:
        return None
    soft, hard = int(match[2]), int(match[3] or match[2])
    if hard != -1 and not 0 <= soft <= hard:
        return None
    return replace(options, ulimits=(*options.ulimits, Ulimit(match[1], soft, hard)))


def _hostname(options: DockerOptions, value: str) -> DockerOptions | None:
    return replace(options, hostname=value) if _HOSTNAME.fullmatch(value) else None


def _workdir(options: DockerOptions, value: str) -> DockerOptions | None:
    return replace(options, directory=value) if _DIRECTORY.fullmatch(value) else None


def _host(options: DockerOptions, value: str) -> DockerOptions | None:
    name, _, address = value.partition(":")
    good = _HOSTNAME.fullmatch(name) and _is_address(address)
    return replace(options, hosts=(*options.hosts, value)) if good else None


def _env(options: DockerOptions, value: str) -> DockerOptions | None:
    """A name alone would take the value from the host's environment."""
    name, equals, text = value.partition("=")
    good = equals and _NAME.fullmatch(name)
    return replace(options, env={**options.env, name: text}) if good else None


def _dns(options: DockerOptions, value: str) -> DockerOptions | None:
    return replace(options, dns=(*options.dns, value)) if _is_address(value) else None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _log_driver(options: DockerOptions, value: str) -> DockerOptions | None:
    return replace(options, log_driver=value) if value in _KEPT_HERE else None


def _log_option(options: DockerOptions, value: str) -> DockerOptions | None:
    name, _, text = value.partition("=")
    form = _LOG_OPTIONS.get(name)
    good = form and form.fullmatch(text)
    return replace(options, log_options={**options.log_options, name: text}) if good else None


def _init(options: DockerOptions, value: str) -> DockerOptions | None:
    return replace(options, init=value == "true") if value in ("true", "false") else None


def _stop_timeout(options: DockerOptions, value: str) -> DockerOptions | None:
    good = value.isascii() and value.isdecimal() and len(value) < 7
    return replace(options, stop_timeout_s=int(value)) if good else None


_READ: Final[dict[str, Callable[[DockerOptions, str], DockerOptions | None]]] = {
    "add-host": _host,
    "dns": _dns,
    "env": _env,
    "hostname": _hostname,
    "init": _init,
    "label": _label,
    "log-driver": _log_driver,
    "log-opt": _log_option,
    "shm-size": _shm_size,
    "stop-timeout": _stop_timeout,
    "ulimit": _ulimit,
    "workdir": _workdir,
}
