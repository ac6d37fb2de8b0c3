"""Options of docker run that an app may set: those that only change the inside of its own container. Pure.

Source: Docker's reference of `docker run` and its forms.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from mesos_gpu.model.apps.app import DockerParameter
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit

_SIZE: Final = re.compile(r"(\d{1,18})([bkmgt]?)b?", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ULIMIT: Final = re.compile(r"([a-z]+)=(-1|\d{1,18})(?::(-1|\d{1,18}))?")
#: Accepted limits; not nice, rtprio and rttime, which would take CPU from other tasks.
_ULIMITS: Final = ("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "sigpending",
                   "stack")  # fmt: skip
_HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_DIRECTORY: Final = re.compile(r"/[^\x00]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT_HERE: Final = ("json-file", "local", "none")  # log drivers that keep the output in the engine
_SENT_AWAY: Final = ("awslogs", "fluentd", "gcplogs", "gelf", "journald", "logentries", "splunk", "syslog")
_OUTPUT: Final = (
    "the output of an instance is kept in its sandbox, and sent nowhere: collect it with mesos-gpu logs"
)
_BY_CPUS, _BY_MEM = "the app's cpus applies", "the app's mem applies"
_BACKGROUND: Final = "an instance has no terminal, and its container is removed after its end"
#: Keys that are accepted without effect, each with what applies instead.
_WITHOUT_EFFECT: Final = {
    **dict.fromkeys(("cpu-period", "cpu-quota", "cpu-shares", "cpus", "cpuset-cpus"), _BY_CPUS),
    **dict.fromkeys(
        ("memory", "memory-reservation", "memory-swap", "memory-swappiness", "oom-kill-disable"), _BY_MEM
    ),
    **dict.fromkeys(("attach", "detach", "interactive", "rm", "tty"), _BACKGROUND),
    "expose": "the app's portMappings or portDefinitions apply",
    "name": "the executor names the container; its label mesos_gpu.task is the id of the task",
    "restart": "the scheduler starts an instance again after its end",
}
_BEYOND: Final = "it reaches beyond the container; leave it out"
_VOLUMES: Final = "list it in container.volumes"
_PUBLISH: Final = "list the port in container.portMappings"
#: Keys that are refused, each with what to write instead; the refusal of other keys lists the accepted ones.
_INSTEAD: Final = {
    **dict.fromkeys(
        ("cap-add", "device", "ipc", "pid", "privileged", "security-opt", "userns", "uts"), _BEYOND
    ),
    **dict.fromkeys(("mount", "tmpfs", "volume", "volumes-from"), _VOLUMES),
    **dict.fromkeys(("publish", "publish-all"), _PUBLISH),
    **dict.fromkeys(("net", "network"), 'set networks, as [{"mode": "host"}], or container.docker.network'),
    "entrypoint": "set cmd, which takes the place of the entrypoint, or args, which are passed to it",
    "env-file": "list the variables in env",
    "user": "set the app's user",
}
#: Keys that request GPUs from nvidia-docker, with the form of such values.
_NVIDIA: Final = {
    "device": re.compile(r"/dev/nvidia.*"),
    "gpus": re.compile(r".*"),
    "runtime": re.compile(r"nvidia.*"),
    "volume": re.compile(r"nvidia_driver.*"),
    "volume-driver": re.compile(r"nvidia.*"),
}
#: Variables that the executor sets from the GPUs of the task, whatever the app sets.
CHOOSES_GPUS: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
GPUS_INSTEAD: Final = "set gpus: N, the number of GPUs of an instance, and leave it out"
GPUS_HOLD: Final = "an instance gets the number of GPUs in its gpus, and no others"
_LOG_SIZES: Final = re.compile(r"\d{1,6}[kmg]")
_LOG_OPTIONS: Final = {
    "max-size": _LOG_SIZES,
    "max-file": re.compile(r"[1-9]\d?"),
    "compress": re.compile("true|false"),
}
_MAX_LOG: Final = 1 << 30  # bytes on the engine's disk, which no limit of the task covers
#: Defaults, so that logs do not fill the engine's disk.
_LOG_BOUNDS: Final = {"max-size": "10m", "max-file": "1"}


@dataclass(frozen=True, slots=True)
class Parameters:
    """Result of reading an app's parameters of `docker run`.

    Attributes:
        options: Options for the Docker Engine.
        refused: Index and reason of each parameter that is not accepted.
        without_effect: Index and reason of each parameter that is accepted but changes nothing.
    """

    options: DockerOptions
    refused: tuple[tuple[int, str], ...] = ()
    without_effect: tuple[tuple[int, str], ...] = ()


def read_parameters(
    parameters: Sequence[DockerParameter], *, has_gpus: bool = False, network: str = ""
) -> Parameters:
    """Read the parameters of `docker run` of an app.

    Args:
        parameters: Parameters of the app's container.
        has_gpus: Whether the app requests GPUs.
        network: Network of its container, as `docker run --network` names it: "host" or "bridge".
    """
    options, refused, without_effect = DockerOptions(), list[tuple[int, str]](), list[tuple[int, str]]()
    is_sent_away = any(
        parameter.key == "log-driver" and parameter.value in _SENT_AWAY for parameter in parameters
    )
    for index, parameter in enumerate(parameters):
        if why := _why_without_effect(parameter, has_gpus, network, is_sent_away=is_sent_away):
            without_effect.append((index, why))
            continue
        read = _READ.get(parameter.key)
        after = read(options, parameter.value) if read else None
        if after is None:
            refused.append((index, _why_refused(parameter)))
        else:
            options = after
    if options.log_driver or options.log_options:
        options = replace(options, log_driver=options.log_driver or "json-file")
        if options.log_driver == "none":
            options = replace(options, log_options={})
        else:
            options = replace(options, log_options={**_LOG_BOUNDS, **options.log_options})
            if _kept(options.log_options["max-size"], options.log_options["max-file"]) > _MAX_LOG:
                last = max(i for i, parameter in enumerate(parameters) if parameter.key.startswith("log-"))
                refused.append((last, "log-opt: max-size times max-file is more than 1 GiB; ask for less"))
    return Parameters(options, tuple(refused), tuple(without_effect))


def _why_without_effect(
    parameter: DockerParameter, has_gpus: bool, network: str, *, is_sent_away: bool
) -> str:
    """Return what applies in place of a parameter that changes nothing; "" for other parameters."""
    if has_gpus and _asks_nvidia_docker(parameter):
        return f"{parameter.key}: {GPUS_HOLD}"
    if parameter.key == "env" and parameter.value.partition("=")[0] in CHOOSES_GPUS:
        return f"{parameter.value.partition('=')[0]}: {GPUS_HOLD if has_gpus else GPUS_INSTEAD}"
    if parameter.key in ("log-driver", "log-opt") and is_sent_away:
        return f"{parameter.key}: {_OUTPUT}"
    if parameter.key in ("net", "network") and parameter.value == network:
        return f"{parameter.key}: the app's network is {network}"
    why = _WITHOUT_EFFECT.get(parameter.key, "")
    return f"{parameter.key}: {why}" if why else ""


def _why_refused(parameter: DockerParameter) -> str:
    """Return why a parameter is refused, and what to write instead."""
    if _asks_nvidia_docker(parameter):
        return f"{parameter.key}={parameter.value}: {GPUS_INSTEAD}"
    if parameter.key in _READ:
        return f"{parameter.key} cannot be {parameter.value!r}; write it as docker run has it"
    if parameter.key in _INSTEAD:
        return f"{parameter.key!r} is not passed on: {_INSTEAD[parameter.key]}"
    return f"{parameter.key!r} is not passed on, only {', '.join(_READ)}; leave it out"


def _asks_nvidia_docker(parameter: DockerParameter) -> bool:
    """Return whether a parameter requests GPUs from nvidia-docker."""
    form = _NVIDIA.get(parameter.key)
    return form is not None and form.fullmatch(parameter.value) is not None


def _kept(size: str, files: str) -> int:
    """Return the bytes that logs may take on the engine's disk."""
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
    """Add a variable. A name without a value is refused: Docker would take the value from the host's environment."""
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
