"""Ability of this host to enforce shares by our CUDA libraries. Lean: the executor imports it for the
operator's switch.
"""

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

SETTING: Final = "MESOS_GPU_SHIM"  # variable of executors and monitor; "off" disables the libraries
SWITCH: Final = "shim.off"  # file in the node directory that disables them at once
#: Driver branches whose real libraries the tests run under ours. Others are used, too, unless they export
#: functions that ours do not know; `mesos-gpu node shim check` shows which branch this host has.
PROVEN: Final = ("535", "550")


def switched_off(env: Mapping[str, str], node_directory: Path | None = None) -> str:
    """Return why an operator has disabled our libraries on this host; "" if they are enabled."""
    if env.get(SETTING) == "off":
        return f"{SETTING}=off"
    switch = (node_directory or directory()) / SWITCH
    return f"{switch} is there" if os.path.lexists(switch) else ""


def libraries(env: Mapping[str, str]) -> "Shim | None":
    """Return our libraries for the driver volume, compiled if need be; None if they are disabled on this
    host.

    Raises:
        Unavailable: As for `build.have`.
    """
    from isolator.shares.shim import build

    return None if switched_off(env) else build.have(env)


def lacks(env: Mapping[str, str], inventory: Inventory) -> str:
    """Return why our libraries cannot enforce shares on this host now; "" if they can. Fast after the first
    call.
    """
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
        "the libraries are not built, and there is no C compiler"
        if missing
        else "the driver volume with them is not built yet"
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
