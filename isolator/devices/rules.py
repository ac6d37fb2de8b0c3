"""Rules on devices that a task may use, from facts of the driver and the granted GPUs. Pure.

Everything is denied unless a rule allows it, as in the kernel's own lists: a request is allowed if one rule
has its type, major and minor and all of its accesses (security/device_cgroup.c, `match_exception`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.errors import BadConfiguration

#: Major number of a driver that is not loaded (Documentation/admin-guide/devices.txt of the kernel); a loaded
#: one has its own in /proc/devices.
DEFAULT_MAJOR: Final = 195
#: Names of /dev/nvidiactl's major: before 550 the driver registered one name for all its minors.
_GPU_NAMES: Final = ("nvidia", "nvidia-frontend", "nvidiactl")
# kernel-open/common/inc/nv.h and nvidia-uvm/uvm_common.h of NVIDIA's open modules.
CONTROL_MINOR: Final = 255
MODESET_MINOR: Final = 254
UVM_MINOR: Final = 0
UVM_TOOLS_MINOR: Final = 1


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Device numbers of the NVIDIA driver.

    Attributes:
        majors: Major numbers of all character devices of /proc/devices, by name.
        caps: Minors under /dev/nvidia-caps that an operator gives to tasks.
        modeset: Whether tasks with a GPU get nvidia-modeset.
    """

    majors: Mapping[str, int] = field(default_factory=dict)
    caps: tuple[int, ...] = ()
    modeset: bool = False

    @property
    def loaded(self) -> bool:
        """Whether the kernel module is loaded."""
        return any(name in self.majors for name in _GPU_NAMES)

    @property
    def gpu_major(self) -> int:
        """Major number of /dev/nvidiaN, /dev/nvidiactl and /dev/nvidia-modeset."""
        return next((self.majors[name] for name in _GPU_NAMES if name in self.majors), DEFAULT_MAJOR)

    @property
    def nvidia_majors(self) -> frozenset[int]:
        """All major numbers of the NVIDIA driver; tasks get devices with these by a grant only."""
        majors = {major for name, major in self.majors.items() if name.startswith("nvidia")}
        return frozenset(majors | {self.gpu_major})


@dataclass(frozen=True, slots=True)
class Device:
    """A character device as a task sees it.

    Attributes:
        access: "rw", or "r" for a capability, which is only read.
    """

    path: str
    major: int
    minor: int
    access: str = "rw"


@dataclass(frozen=True, slots=True)
class Rule:
    """An allowance.

    Attributes:
        kind: "c" for character or "b" for block devices.
        major: Major number; None for any.
        minor: Minor number; None for any.
        access: Letters of r (read), w (write), m (mknod).
    """

    kind: str
    major: int | None
    minor: int | None
    access: str

    def __str__(self) -> str:
        """Write the rule as cgroup v1's devices.allow takes it."""
        major, minor = ("*" if n is None else str(n) for n in (self.major, self.minor))
        return f"{self.kind} {major}:{minor} {self.access}"

    def covers(self, kind: str, major: int, minor: int, access: str) -> bool:
        """Return whether the rule allows a request."""
        return (
            self.kind == kind
            and self.major in (None, major)
            and self.minor in (None, minor)
            and set(access) <= set(self.access)
        )


#: Devices that every program expects (default devices of the OCI runtime specification). They may be made,
#: too, as Mesos makes them in the container of an image.
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
    """Return the NVIDIA nodes of a task that holds the GPUs with these minors; none for a task without GPUs.

    Args:
        facts: Numbers of the driver.
        minors: Minor numbers of the GPUs.
        instance: Minors of the capabilities of a MIG instance, for a task that holds one: it may read these,
            and gets no others.

    Raises:
        BadConfiguration: A minor is that of a control device, which no GPU has.
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
    """Return the rules for a task with these NVIDIA devices, whose nodes can be opened, but not made.

    Args:
        devices: Result of `nvidia_devices`.
        extra: Further nodes of the host that its operator gives to every task.
    """
    return (
        *(Rule("c", device.major, device.minor, "rwm") for device in STANDARD),
        *_TERMINALS,
        *(Rule("c", device.major, device.minor, device.access) for device in (*extra, *devices)),
    )


def allows(rules: Iterable[Rule], kind: str, major: int, minor: int, access: str) -> bool:
    """Return whether the kernel would allow a request by these rules."""
    return any(rule.covers(kind, major, minor, access) for rule in rules)
