"""How many processes and threads a task may have at once: a bomb of forks would else stop its host.

MESOS_GPU_PIDS on the agent; 4096 if it is not set, 0 for no limit. Held by the cgroup controller `pids`, v1 or v2;
where a kernel gives neither, by RLIMIT_NPROC, which counts all processes of the user on the host.
Sources: the kernel's Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst; setrlimit(2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.devices import cgroups
from isolator.devices.cgroups import OWN_ROOT, Cgroup
from isolator.gpus.ledger import Trace
from mesos_gpu.errors import BadConfiguration, MesosGpuError

LIMIT: Final = "MESOS_GPU_PIDS"
DEFAULT: Final = 4096
_LEAST: Final = 16  # a shell, a program and its threads
_CONTROLLER: Final = "pids"


@dataclass(frozen=True, slots=True)
class PidsLimit:
    """The limit of a task's processes. `cgroup`: that which counts them; None: no controller is there for it."""

    most: int
    cgroup: Cgroup | None

    def traces(self) -> tuple[Trace, ...]:
        """What `set_up` leaves behind."""
        own = self.cgroup is not None and self.cgroup.own
        return (Trace(self.cgroup.version, str(self.cgroup.path)),) if own and self.cgroup else ()

    def set_up(self) -> None:
        """Make the cgroup, if it is ours, and set the limit.

        Raises:
            MesosGpuError: The kernel refuses.
        """
        if self.cgroup is None:
            return
        try:
            self.cgroup.create()
            if self.cgroup.version == "cgroup2":
                _hand_down(self.cgroup.path.parent)
            (self.cgroup.path / "pids.max").write_text(str(self.most))
        except OSError as error:
            raise MesosGpuError(
                f"the processes of {self.cgroup.path} cannot be limited: {error}",
                remedy=f"see what else keeps the controller pids there; {LIMIT}=0 on the agent for no limit",
            ) from error


def limit_of(own: Mapping[str, str]) -> int:
    """The operator's word; 0: none.

    Raises:
        BadConfiguration: It is no number, or less than a task can live with.
    """
    text = own.get(LIMIT) or str(DEFAULT)
    if not text.isdecimal() or 0 < int(text) < _LEAST:
        raise BadConfiguration(
            f"{LIMIT} is {text!r}", remedy=f"set it to {_LEAST} or more processes, or to 0 for no limit"
        )
    return int(text)


def pids_for(container: str, most: int, joined: Path | None, root: Path = Path("/")) -> PidsLimit | None:
    """The limit of a container's task; None: it has none.

    Args:
        container: Mesos' id of the executor's container.
        most: From `limit_of`.
        joined: Of version 2, the cgroup that the task joins anyway: a process is in one only.
        root: Whose /proc and cgroups are read.
    """
    if not most:
        return None
    if (mount := mounted(root)) is not None:
        return PidsLimit(most, Cgroup("cgroup1", mount / OWN_ROOT / container, own=True))
    mount = cgroups.mounted(root).get("cgroup2")
    if mount is None or _CONTROLLER not in (mount / "cgroup.controllers").read_text().split():
        return PidsLimit(most, None)
    return PidsLimit(most, Cgroup("cgroup2", joined or mount / OWN_ROOT / container, own=True))


def given(container: str, most: int, root: Path = Path("/")) -> PidsLimit | None:
    """The limit of what the agent nests in a container, by the cgroup that it gave to that (its isolator cgroups/pids);
    None: it gave none, or there is to be no limit."""
    mount = mounted(root)
    if not most or mount is None:
        return None
    for line in (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if _CONTROLLER in controllers.split(",") and path.rpartition("/")[2] == container:
            return PidsLimit(most, Cgroup("cgroup1", mount / path.lstrip("/"), own=False))
    return None


def leave(limit: PidsLimit) -> None:
    """Take this process out of a cgroup that the agent gave: what shares it must not keep it from its work.

    Raises:
        OSError: The kernel refuses.
    """
    mount: Path | None = mounted()
    if mount is not None and limit.cgroup is not None:
        (mount / "cgroup.procs").write_text("0")


def mounted(root: Path = Path("/")) -> Path | None:
    """Return the mount point of version 1's hierarchy of pids; None if it is not mounted."""
    try:
        return cgroups.mounted_with(_CONTROLLER, root)
    except FileNotFoundError:
        return None


def _hand_down(path: Path) -> None:
    """Hand the controllers down, from the root on: a cgroup has those that all above it give to their children."""
    mount = cgroups.mounted()["cgroup2"]
    for above in (*reversed(path.parents), path):
        control = above / "cgroup.subtree_control"
        if above.is_relative_to(mount) and _CONTROLLER not in control.read_text().split():
            control.write_text(f"+{_CONTROLLER}")
