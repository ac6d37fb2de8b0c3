"""The Container Device Interface: this host's GPUs for podman, Docker and containerd. Pure.

Source: SPEC.md of the CDI specification. Version 0.5.0 is the oldest that has all that is used (names that begin
with a digit), so that every container engine with CDI reads it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from isolator.devices.rules import Device, DriverFacts, nvidia_devices
from mesos_gpu.errors import BadConfiguration, NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.policy.gpus.volume_paths import OPTIX_DATA, OPTIX_PATH, VOLUME_PATH, container_environment

VERSION: Final = "0.5.0"
#: NVIDIA's own name, so that commands and files written for NVIDIA's toolkit work as they are.
HOST_KIND: Final = "nvidia.com/gpu"
TASK_KIND: Final = "mesos-gpu/task"
#: Where containers have the driver's programs: a spec cannot add to the PATH of an image, only replace it.
PROGRAMS_AT: Final = "/usr/bin"
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind")


@dataclass(frozen=True, slots=True)
class Card:
    """GPU of the host as far as CDI needs it.

    Attributes:
        id: UUID, as `nvidia-smi -L` lists it.
        index: NVML index, as `nvidia-smi` shows it; None if NVML does not list it.
        minor: Number of its device, N of /dev/nvidiaN.
    """

    id: GpuId
    index: int | None
    minor: int


@dataclass(frozen=True, slots=True)
class Library:
    """The driver volume, as containers get it.

    Attributes:
        path: Path on the host that leads to the current build.
        programs: Names of the files in its `bin`.
        data: Files of data that it has, as paths below it.
    """

    path: str
    programs: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


def host_spec(driver: DriverFacts, cards: Sequence[Card], volume: Library | None) -> dict[str, Any]:
    """Describe GPUs by UUID and by NVML index, and `all` of them.

    Args:
        driver: Device numbers of this host's driver.
        cards: GPUs that the spec is to have.
        volume: Driver volume on this host; None if containers must bring the driver's libraries.

    Raises:
        NotFound: There are no GPUs; container engines refuse a spec without devices.
    """
    by_uuid = [(str(card.id), [card.minor]) for card in sorted(cards, key=lambda card: card.id)]
    minors = {card.index: card.minor for card in cards if card.index is not None}
    by_index = [(str(index), [minors[index]]) for index in sorted(minors)]
    every = sorted(card.minor for card in cards)
    return _spec(HOST_KIND, driver, [*by_uuid, *by_index, ("all", every)], volume)


def task_spec(
    task: str, driver: DriverFacts, cards: Sequence[Card], volume: Library | None
) -> dict[str, Any]:
    """Describe all GPUs of one task as one device, named as the task.

    Raises:
        NotFound: There are no GPUs.
        BadConfiguration: The task's name is not allowed in CDI.
    """
    if not _DEVICE_NAME.fullmatch(task):
        raise BadConfiguration(
            f"CDI cannot name a device {task!r}", remedy="select the GPUs of that task with --gpu"
        )
    return _spec(TASK_KIND, driver, [(task, sorted(card.minor for card in cards))], volume)


def _spec(
    kind: str, driver: DriverFacts, devices: Iterable[tuple[str, list[int]]], volume: Library | None
) -> dict[str, Any]:
    named = [(name, minors) for name, minors in devices if minors]
    if not named:
        raise NotFound("there are no GPUs to describe", remedy="see `mesos-gpu doctor` for what is missing")
    every = {minor for _, minors in named for minor in minors}
    alone = {minor: nvidia_devices(driver, [minor])[-1] for minor in every}
    shared = [device for device in nvidia_devices(driver, every) if device not in alone.values()]
    # `void`: a hook of NVIDIA's older runtime must not add the GPUs that an image asks for.
    common: dict[str, Any] = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", *(_environment(volume) if volume is not None else ())],
        "deviceNodes": [_node(device) for device in shared],
    }
    if volume is not None:
        common["mounts"] = _mounts(volume)
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [_node(alone[minor]) for minor in minors]}}
            for name, minors in named
        ],
        "containerEdits": common,
    }


def _environment(volume: Library) -> list[str]:
    """Return the variables of our own launches except PATH, as a spec would replace the image's;
    `PROGRAMS_AT` is in every PATH.
    """
    variables: Mapping[str, str] = container_environment(ImageConfig(), compat=False, data=volume.data)
    return [f"{name}={value}" for name, value in variables.items() if name != "PATH"]


def _mounts(volume: Library) -> list[dict[str, Any]]:
    binds = [("", VOLUME_PATH), *((f"/bin/{name}", f"{PROGRAMS_AT}/{name}") for name in volume.programs)]
    if OPTIX_DATA in volume.data:
        binds.append((f"/{OPTIX_DATA}", OPTIX_PATH))
    return [
        {"hostPath": f"{volume.path}{below}", "containerPath": inside, "options": list(_READ_ONLY)}
        for below, inside in binds
    ]


def _node(device: Device) -> dict[str, Any]:
    return {
        "path": device.path,
        "type": "c",
        "major": device.major,
        "minor": device.minor,
        "permissions": "rw",
    }
