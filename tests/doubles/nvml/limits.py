"""Memory limits of cgroups in the double of NVML, on a directory of cgroups that a test gives.

Answers as in NVIDIA's "MPS v3 Memory Partitioning" and its open kernel module 615.71.09, mem_mgr/memacct.c.
"""

from pathlib import Path
from typing import Any, Final

import pynvml

from tests.doubles.nvml.state import State

ROOT: Final = "/sys/fs/cgroup"


class FakeLimits(State):
    """Calls of NVML for memory limits of cgroups.

    Key `memacct` of the state: "dmem" (limits are in files of the cgroup), "misc" (the driver holds them), "off"
    (disabled by configuration); the driver is older than 615 if it is missing. `tree`: path of /sys/fs/cgroup; `used`:
    MiB by cgroup path; `ignores`: whether the driver accepts limits and does not set them.
    """

    def nvmlDeviceSetMemoryLimits_v1(self, handle: int, limits: Any) -> None:
        """Set the soft and the hard limit of a cgroup; needs root."""
        state, path = self._limited(handle, limits)
        if state.get("user"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        if state["memacct"] == "dmem":
            # "Setting on a cgroup with no dmem files returns not found." It has them if the one above enables them.
            if "dmem" not in (path.parent / "cgroup.subtree_control").read_text():
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        elif path == Path(state["tree"]):  # memacctSetLimits: no limits of the root, to match dmem
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        elif limits.hardLimit < self._used(
            state, path
        ):  # memacctSetLimits: lower than the current allocation
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if state.get("ignores"):
            return
        rows = state.setdefault("limits", {})
        key = f"{handle} {path}"
        before = rows.get(key, [0, 0])[0]
        rows[key] = [limits.softLimit, limits.hardLimit]
        if (
            state["memacct"] == "dmem"
        ):  # raises its ancestors' dmem.min by as much; nothing lowers it but another set
            for parent in path.parents:
                if not (parent / "dmem.min").exists():
                    break
                reserved = int((parent / "dmem.min").read_text() or 0)
                (parent / "dmem.min").write_text(str(reserved + limits.softLimit - before))
        self._put(state)

    def nvmlDeviceGetMemoryLimits_v1(self, handle: int, limits: Any) -> None:
        """Read the limits and the used memory of a cgroup; needs no privilege."""
        state, path = self._limited(handle, limits)
        row = state.get("limits", {}).get(f"{handle} {path}")
        if row is None and state["memacct"] == "misc":  # memacctGetLimits: no limits here and above
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        limits.softLimit, limits.hardLimit = row or (0, pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
        limits.currentUsed = self._used(state, path)

    def _limited(self, handle: int, limits: Any) -> tuple[Any, Path]:
        state = self._now()
        self._optional(handle)
        backend = state.get("memacct")
        if backend is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if backend == "off" or self._card(handle).get("mig", {}).get("mode"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        path = Path(limits.nameSpace)
        if not path.is_dir():
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return state, path

    @staticmethod
    def _used(state: Any, path: Path) -> int:
        return int(state.get("used", {}).get(str(path), 0)) << 20
