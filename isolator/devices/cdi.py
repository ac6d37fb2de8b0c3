"""The Container Device Interface: this host's GPUs for podman, Docker and containerd. Pure.

Source: SPEC.md of the CDI specification. Version 0.5.0 is the oldest that has all that is used (names that begin
with a digit), so that every container engine with CDI reads it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from isolator.devices.rules import Device, DriverFacts, nvidia_devices
from mesos_gpu.errors import BadConfiguration, NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH

VERSION: Final = "0.5.0"
#: NVIDIA's own name, so that commands and files written for NVIDIA's toolkit work as they are.
HOST_KIND: Final = "nvidia.com/gpu"
TASK_KIND: Final = "mesos-gpu/task"
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def host_spec(driver: DriverFacts, minors: Mapping[GpuId, int], volume: str | None) -> dict[str, Any]:
    """The GPUs by UUID and by minor, and `all`.

    Args:
        driver: The device numbers of this host's driver.
        minors: Of each GPU that the spec is to have.
        volume: The driver volume on this host; None: containers must bring the driver's libraries.

    Raises:
        NotFound: No GPUs: a spec without devices is refused by those who read it.
    """
    by_uuid = [(str(gpu), [minor]) for gpu, minor in sorted(minors.items())]
    by_minor = [(str(minor), [minor]) for minor in sorted(minors.values())]
    return _spec(HOST_KIND, driver, [*by_uuid, *by_minor, ("all", sorted(minors.values()))], volume)


def task_spec(
    task: str, driver: DriverFacts, minors: Mapping[GpuId, int], volume: str | None
) -> dict[str, Any]:
    """All GPUs of one task as one device, named as the task.

    Raises:
        NotFound: No GPUs.
        BadConfiguration: CDI has no such names.
    """
    if not _DEVICE_NAME.fullmatch(task):
        raise BadConfiguration(
            f"CDI cannot name a device {task!r}", remedy="choose the GPUs of that task by --gpu"
        )
    return _spec(TASK_KIND, driver, [(task, sorted(minors.values()))], volume)


def _spec(
    kind: str, driver: DriverFacts, devices: Iterable[tuple[str, list[int]]], volume: str | None
) -> dict[str, Any]:
    named = [(name, minors) for name, minors in devices if minors]
    if not named:
        raise NotFound("there are no GPUs to describe", remedy="see `mesos-gpu doctor` for what is missing")
    every = {minor for _, minors in named for minor in minors}
    alone = {minor: nvidia_devices(driver, [minor])[-1] for minor in every}
    shared = [device for device in nvidia_devices(driver, every) if device not in alone.values()]
    # `void`: a hook of NVIDIA's older runtime must not add the GPUs that an image asks for.
    common: dict[str, Any] = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [_node(device) for device in shared],
    }
    if volume is not None:
        options = ["ro", "nosuid", "nodev", "rbind"]
        common["mounts"] = [{"hostPath": volume, "containerPath": VOLUME_PATH, "options": options}]
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [_node(alone[minor]) for minor in minors]}}
            for name, minors in named
        ],
        "containerEdits": common,
    }


def _node(device: Device) -> dict[str, Any]:
    return {
        "path": device.path,
        "type": "c",
        "major": device.major,
        "minor": device.minor,
        "permissions": "rw",
    }
