"""Which devices a task may use: driver facts and granted GPUs to an ordered rule set. Pure.

Everything is denied but what a rule allows, as in the kernel's own lists: a request is allowed if one rule has
its type, major and minor and all of its accesses (security/device_cgroup.c, `match_exception`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.errors import BadConfiguration

#: What a driver that is not loaded would have (Documentation/admin-guide/devices.txt of the kernel); a loaded one
#: says its own in /proc/devices.
DEFAULT_MAJOR: Final = 195
#: Of /dev/nvidiactl's major: before 550 the driver registered one name for all its minors.
_GPU_NAMES: Final = ("nvidia", "nvidia-frontend", "nvidiactl")
# kernel-open/common/inc/nv.h and nvidia-uvm/uvm_common.h of NVIDIA's open modules.
CONTROL_MINOR: Final = 255
MODESET_MINOR: Final = 254
UVM_MINOR: Final = 0
UVM_TOOLS_MINOR: Final = 1


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver's device numbers. `majors`: name to major of all character devices of /proc/devices."""

    majors: Mapping[str, int] = field(default_factory=dict)
    caps: tuple[int, ...] = ()  # minors under /dev/nvidia-caps that an operator wants tasks to have
    modeset: bool = False  # whether tasks with a GPU get nvidia-modeset

    @property
    def loaded(self) -> bool:
        """Whether the kernel module is there."""
        return any(name in self.majors for name in _GPU_NAMES)

    @property
    def gpu_major(self) -> int:
        """The major number of /dev/nvidiaN, /dev/nvidiactl and /dev/nvidia-modeset."""
        return next((self.majors[name] for name in _GPU_NAMES if name in self.majors), DEFAULT_MAJOR)

    @property
    def nvidia_majors(self) -> frozenset[int]:
        """Every major that an NVIDIA driver has, known by name: nobody gets them by another way."""
        majors = {major for name, major in self.majors.items() if name.startswith("nvidia")}
        return frozenset(majors | {self.gpu_major})


@dataclass(frozen=True, slots=True)
class Device:
    """A character device as a task sees it. `access`: "rw", or "r" of a capability, which is only shown."""

    path: str
    major: int
    minor: int
    access: str = "rw"


@dataclass(frozen=True, slots=True)
class Rule:
    """An allowance. `access`: of r (read), w (write), m (mknod); None: any major, any minor."""

    kind: str  # "c" or "b"
    major: int | None
    minor: int | None
    access: str

    def __str__(self) -> str:
        """Write the rule as cgroup v1's devices.allow takes it."""
        major, minor = ("*" if n is None else str(n) for n in (self.major, self.minor))
        return f"{self.kind} {major}:{minor} {self.access}"

    def covers(self, kind: str, major: int, minor: int, access: str) -> bool:
        """Whether it allows that request."""
        return (
            self.kind == kind
            and self.major in (None, major)
            and self.minor in (None, minor)
            and set(access) <= set(self.access)
        )


#: What every program expects (the OCI runtime specification's default devices). They may be made, too: Mesos makes
#: them in the container of an image.
STANDARD: Final = (
    Device("/dev/null", 1, 3),
    Device("/dev/zero", 1, 5),
    Device("/dev/full", 1, 7),
    Device("/dev/random", 1, 8),
    Device("/dev/urandom", 1, 9),
    Device("/dev/tty", 5, 0),
)
_TERMINALS: Final = (Rule("c", 5, 1, "rwm"), Rule("c", 5, 2, "rwm"), Rule("c", 136, None, "rw"))


def nvidia_devices(
    facts: DriverFacts, minors: Iterable[int], instance: Sequence[int] = ()
) -> tuple[Device, ...]:
    """The NVIDIA nodes of a task that holds the GPUs with these minors: none at all for a task that holds none.

    Args:
        facts: The driver's numbers.
        minors: Of the GPUs.
        instance: For a task that holds one MIG instance of them, minors of that one's capabilities: it gets these, to
            be read, and no others.

    Raises:
        BadConfiguration: A minor that is a control device's: no GPU has it.
    """
    granted = sorted(set(minors))
    if not granted:
        return ()
    if bad := [minor for minor in granted if minor in (CONTROL_MINOR, MODESET_MINOR)]:
        raise BadConfiguration(
            f"a GPU cannot have the minor {bad[0]}: it is a control device's", remedy="see what NVML reports"
        )
    major = facts.gpu_major
    devices = [Device("/dev/nvidiactl", major, CONTROL_MINOR)]
    if facts.modeset:
        devices.append(Device("/dev/nvidia-modeset", major, MODESET_MINOR))
    if (uvm := facts.majors.get("nvidia-uvm")) is not None:
        devices += [
            Device("/dev/nvidia-uvm", uvm, UVM_MINOR),
            Device("/dev/nvidia-uvm-tools", uvm, UVM_TOOLS_MINOR),
        ]
    if (caps := facts.majors.get("nvidia-caps")) is not None:
        access = "r" if instance else "rw"
        devices += [
            Device(f"/dev/nvidia-caps/nvidia-cap{minor}", caps, minor, access)
            for minor in instance or facts.caps
        ]
    return (*devices, *(Device(f"/dev/nvidia{minor}", major, minor) for minor in granted))


def rules_of(devices: Sequence[Device], extra: Sequence[Device] = ()) -> tuple[Rule, ...]:
    """What a task with these NVIDIA devices may use. NVIDIA nodes can be opened, and not made.

    Args:
        devices: From `nvidia_devices`.
        extra: Further nodes of the host that its operator gives to every task.
    """
    return (
        *(Rule("c", device.major, device.minor, "rwm") for device in STANDARD),
        *_TERMINALS,
        *(Rule("c", device.major, device.minor, device.access) for device in (*extra, *devices)),
    )


def allows(rules: Iterable[Rule], kind: str, major: int, minor: int, access: str) -> bool:
    """What the kernel would decide."""
    return any(rule.covers(kind, major, minor, access) for rule in rules)
