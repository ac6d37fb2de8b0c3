"""Whether this host can keep shares by our libraries, and if not, why. Lean: the executor asks for the switch."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.gpus.ledger import directory
from isolator.shares.shim.volume import for_tasks
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.keys import REPLACED

if TYPE_CHECKING:
    from volumes.shim import Shim

SETTING: Final = "MESOS_GPU_SHIM"  # of the agent's executors and of the monitor: "off"
SWITCH: Final = "shim.off"  # a file in the node directory: the same, at once
#: Branches of the driver whose real libraries the tests run under ours. Others are used, too, unless they export what
#: ours does not know; `mesos-gpu node shim check` says which this host has.
PROVEN: Final = ("535", "550")


def switched_off(env: Mapping[str, str], node_directory: Path | None = None) -> str:
    """What keeps this host from using our libraries by an operator's will; "": nothing."""
    if env.get(SETTING) == "off":
        return f"{SETTING}=off"
    switch = (node_directory or directory()) / SWITCH
    return f"{switch} is there" if os.path.lexists(switch) else ""


def libraries(env: Mapping[str, str]) -> "Shim | None":
    """Our libraries for the driver volume, compiled if need be; None: this host is to use none.

    Raises:
        Unavailable: As of `build.have`.
    """
    from isolator.shares.shim import build

    return None if switched_off(env) else build.have(env)


def lacks(env: Mapping[str, str], inventory: Inventory) -> str:
    """Why no share can be kept by our libraries on this host now; "": it can. Quick, but for the first call."""
    if why := switched_off(env):
        return why
    if inventory.driver_version is None:
        return "no driver"
    volume = for_tasks(env, inventory)
    if volume is None:
        return _why_no_volume(env)
    return _unproven(volume)


def _why_no_volume(env: Mapping[str, str]) -> str:
    from isolator.shares.shim import build

    try:
        missing = build.built(env) is None and build.compiler(env) is None
    except (MesosGpuError, OSError) as error:
        return str(error)
    return (
        "no C compiler, and no built libraries" if missing else "the driver volume with them is not built yet"
    )


@lru_cache(maxsize=4)
def _unproven(volume: Path) -> str:
    from isolator.shares.shim.exports import exports, unknown

    _, _, real = REPLACED[0]
    try:
        names = unknown(exports(volume / "lib64" / real))
    except (OSError, ValueError) as error:
        return f"the driver's libcuda cannot be read: {error}"
    return f"the driver has functions that are not known: {', '.join(names)}" if names else ""
