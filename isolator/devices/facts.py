"""Facts of this host: device numbers of its driver, minors of its GPUs, its cgroups. Readers take a root.

Lean: the executor imports it.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from isolator.devices import cgroups
from isolator.devices.rules import Device, DriverFacts, nvidia_devices
from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos import report

if TYPE_CHECKING:  # deferred: few executors need it, and each import slows the start
    from mesos_gpu.model.shares.share import Share

MODPROBE_S: Final = 60.0
Isolation = Literal["cgroup1", "cgroup2", "off"]
ISOLATIONS: Final = ("auto", "cgroup1", "cgroup2", "off")


def read_driver(root: Path = Path("/"), env: Mapping[str, str] | None = None) -> DriverFacts:
    """Read the driver's device numbers from /proc/devices, and the optional devices that an operator has
    enabled.

    Args:
        env: Environment whose MESOS_GPU_OPTIONAL_DEVICES may list `modeset` and `caps/N`, separated by
            commas.

    Raises:
        BadConfiguration: That variable has another value.
    """
    text = _text(root / "proc/devices")
    majors: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdigit():
            majors.setdefault(name.strip(), int(number))
    modeset, caps = False, []
    for word in filter(None, (env or {}).get("MESOS_GPU_OPTIONAL_DEVICES", "").split(",")):
        capability = re.fullmatch(r"caps/(\d+)", word.strip())
        if capability:
            caps.append(int(capability[1]))
        elif word.strip() == "modeset":
            modeset = True
        else:
            raise BadConfiguration(
                f"MESOS_GPU_OPTIONAL_DEVICES names {word.strip()!r}",
                remedy="list modeset and caps/N, separated by commas",
            )
    return DriverFacts(majors, tuple(caps), modeset)


def load_driver(root: Path = Path("/")) -> None:
    """Load the kernel modules and make their nodes, if NVIDIA's own tool is installed (nvidia-modprobe(1)).

    Raises:
        Unavailable: The tool fails.
    """
    tool = next(
        (p for d in ("usr/bin", "bin", "usr/sbin") if os.access(p := root / d / "nvidia-modprobe", os.X_OK)),
        None,
    )
    if tool is None:
        return
    import subprocess  # deferred: needed only by the first task after a boot

    try:
        done = subprocess.run([tool, "-c", "0", "-u"], capture_output=True, timeout=MODPROBE_S, text=True)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{tool} hangs", remedy="see dmesg; the host may need a reboot") from None
    if done.returncode:
        raise Unavailable(
            f"{tool} failed: {done.stderr.strip()}", remedy="see dmesg for why the driver does not load"
        )


def minors_of_driver(root: Path = Path("/")) -> dict[GpuId, int]:
    """Return the minor of each GPU by UUID, from the driver's text files
    (/proc/driver/nvidia/gpus/*/information).

    A card that was never opened has no UUID there, and is left out.
    """
    minors = {}
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        text = _text(path)
        uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)\s*$", text, re.M)
        minor = re.search(r"^Device Minor:\s*(\d+)\s*$", text, re.M)
        if uuid and minor:
            minors[GpuId(uuid[1])] = int(minor[1])
    return minors


def write_inventory(directory: Path, inventory: Inventory) -> None:
    """Write the inventory of GPUs for this host's executors, atomically."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = {"boot_id": boot_id(), "report": json.loads(report.encode(inventory))}
    part = directory / f".inventory.{os.getpid()}"
    part.write_text(json.dumps(body))
    part.rename(directory / "inventory.json")


def read_inventory(directory: Path, *, shares: bool = True) -> Inventory:
    """Return the inventory that the monitor wrote since this boot, as minors of an earlier boot mean nothing.

    Args:
        shares: Whether to read what it has on shares of cards.

    Raises:
        Unavailable: None was written since this boot.
        Damaged: The file is not what the monitor writes.
    """
    path = directory / "inventory.json"
    missing = Unavailable(
        f"the node monitor has not written {path} since this host booted",
        remedy="check that it runs: mesos-gpu nodes",
    )
    try:
        body = parsed(path.read_text())
        if body["boot_id"] != boot_id():
            raise missing
        return report.inventory_from_json(body["report"], shares=shares)
    except FileNotFoundError:
        raise missing from None
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(
            f"{path} cannot be read: {error}", remedy="remove it: the monitor writes it again"
        ) from error


def minors(gpus: tuple[GpuId, ...], inventory: Inventory, root: Path = Path("/")) -> dict[GpuId, int]:
    """Return the current minor of each granted GPU.

    Raises:
        MesosGpuError: A GPU is missing or not healthy, or NVML and the driver's files disagree: nothing is
            granted.
    """
    cards = {gpu.id: gpu for gpu in inventory.gpus}
    driver_minors = minors_of_driver(root) if inventory.source == "nvml" else {}
    minor_by_gpu = {}
    for uuid in gpus:
        gpu = cards.get(uuid)
        if gpu is None:
            raise Unavailable(
                f"{uuid} is not on this host now", remedy="none needed: the task is placed again"
            )
        if gpu.health.value not in ("ok", "suspect"):
            raise Unavailable(
                f"{uuid} is {gpu.health.value}: {gpu.reason}", remedy="none needed: the task is placed again"
            )
        if driver_minors.get(uuid, gpu.minor) != gpu.minor:
            raise MesosGpuError(
                f"{uuid} has minor {gpu.minor} by NVML, but {driver_minors[uuid]} by the driver",
                remedy="restart the node monitor; if that does not help, reboot",
            )
        minor_by_gpu[uuid] = gpu.minor
    return minor_by_gpu


def granted_devices(
    driver: DriverFacts,
    minors: Mapping[GpuId, int],
    share: "Share | None",
    inventory: Inventory,
    root: Path = Path("/"),
) -> tuple[Device, ...]:
    """Return the NVIDIA nodes of a task that holds these GPUs, or a share of each.

    Raises:
        Unavailable: It holds a MIG instance that does not exist now.
    """
    # simulated instances have no device numbers
    if share is None or not share.instance or inventory.source == "simulated":
        return nvidia_devices(driver, minors.values())
    return nvidia_devices(driver, minors.values(), _capabilities(share.instance, minors, inventory, root))


def _capabilities(
    instance: str, minors: Mapping[GpuId, int], inventory: Inventory, root: Path
) -> tuple[int, int]:
    from mesos_gpu.adapters.nvml.mig import capability_minors

    for gpu in inventory.gpus:
        for each in gpu.sharing.instances if gpu.sharing is not None and gpu.id in minors else ():
            if instance in (each.uuid, f"{each.profile}@{each.start}"):
                return capability_minors(minors[gpu.id], each.gpu_instance, each.compute_instance, root)
    raise Unavailable(
        f"the MIG instance {instance} is not on this host now", remedy="none needed: the task is placed again"
    )


def extra_devices(env: Mapping[str, str], driver: DriverFacts, root: Path = Path("/")) -> tuple[Device, ...]:
    """Return the nodes of the host that every task gets: paths in MESOS_GPU_EXTRA_DEVICES, such as
    /dev/infiniband/uverbs0.

    Raises:
        BadConfiguration: A path is not a character device below /dev, or is a device of NVIDIA, which only
            grants give.
    """
    devices = []
    for path in filter(None, env.get("MESOS_GPU_EXTRA_DEVICES", "").split(",")):
        try:
            status = os.stat(root / path.lstrip("/"))
        except OSError as error:
            raise _bad_extra(path, error.strerror or str(error)) from error
        if not path.startswith("/dev/") or ".." in path or not stat.S_ISCHR(status.st_mode):
            raise _bad_extra(path, "it is not a character device below /dev")
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        if major in driver.nvidia_majors:
            raise _bad_extra(path, "it is a device of NVIDIA")
        devices.append(Device(path, major, minor))
    return tuple(devices)


def _bad_extra(path: str, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"MESOS_GPU_EXTRA_DEVICES names {path}: {why}",
        remedy="list character devices below /dev, but none of NVIDIA",
    )


def isolation_name(env: Mapping[str, str] | None = None) -> Isolation:
    """Return how tasks of this host are kept from GPUs of others: cgroup1, cgroup2 or off.

    Args:
        env: Environment whose MESOS_GPU_ISOLATION decides; without it, cgroup1 if the devices controller is
            mounted, else cgroup2.

    Raises:
        BadConfiguration: It has an invalid value.
        Unavailable: The kind that it names is not available on this host.
    """
    setting = (os.environ if env is None else env).get("MESOS_GPU_ISOLATION") or "auto"
    if setting not in ISOLATIONS:
        raise BadConfiguration(
            f"MESOS_GPU_ISOLATION is {setting!r}", remedy=f"set it to one of {', '.join(ISOLATIONS)}"
        )
    if setting == "off":
        return "off"
    mounts = cgroups.mounted()
    versions: tuple[cgroups.Version, ...] = ("cgroup1", "cgroup2")
    for version in versions:
        if version in mounts and setting in ("auto", version):
            return version
    raise Unavailable(
        f"MESOS_GPU_ISOLATION={setting}: "
        f"{'no cgroups that control devices' if setting == 'auto' else setting} mounted here",
        remedy="mount cgroup2 on /sys/fs/cgroup; or, to run tasks that can use every GPU, set MESOS_GPU_ISOLATION=off",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
