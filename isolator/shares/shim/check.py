"""Check of our CUDA libraries with this host's own driver: they load, intercept calls, and refuse what
exceeds a share.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from isolator.shares.shim import ability, build
from isolator.shares.shim.exports import exports, unknown, wrapped
from isolator.shares.shim.region import MIB, CardLimits, Region
from isolator.shares.shim.volume import for_tasks
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.keys import REPLACED

SHARE_MIB: Final = 64
_TRIAL_S: Final = 60.0
NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE
#: Calls libcuda as a program does. Prints the results of cuInit and, with a card, of allocating one MiB over
#: the share and half of the share.
_TRIAL: Final = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
seen = {"cuInit": cuda.cuInit(0)}
if not seen["cuInit"]:
    context, pointer = ctypes.c_void_p(), ctypes.c_ulonglong()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    share = int(sys.argv[1])
    for name, size in (("too much", share + (1 << 20)), ("a part", share // 2)):
        seen[name] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
print(json.dumps(seen))
"""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one check.

    Attributes:
        well: Whether it passed; if False, our libraries do not enforce shares here.
    """

    check: str
    well: bool
    text: str


def check(env: Mapping[str, str], inventory: Inventory) -> Iterator[Result]:
    """Run all checks that this host allows; a failed check may end the sequence.

    Args:
        env: Environment of the agent's executors.
        inventory: Driver and cards of this host.
    """
    off = ability.switched_off(env)
    yield Result("switch", not off, off or "on")
    shim = build.built(env)
    yield Result(
        "libraries",
        shim is not None,
        shim.cuda if shim else "they are not built: run mesos-gpu node shim build",
    )
    if inventory.driver_version is None:
        yield Result("driver", False, "this host has no NVIDIA driver")
        return
    branch = inventory.driver_version.partition(".")[0]
    is_proven = branch in ability.PROVEN
    remark = (
        "is a tested branch"
        if is_proven
        else f"is not among the tested branches: {', '.join(ability.PROVEN)}"
    )
    yield Result("driver", True, f"{inventory.driver_version} {remark}")
    volume = for_tasks(env, inventory)
    if volume is None:
        yield Result(
            "volume",
            False,
            "the node monitor has not built it: run mesos-gpu node shim build, then wait a minute",
        )
        return
    yield Result("volume", True, str(volume))
    yield _exports(volume)
    yield from _trial(volume, inventory)


def _exports(volume: Path) -> Result:
    try:
        names = exports(volume / "lib64" / REPLACED[0][2])
    except (OSError, ValueError) as error:
        return Result("exports", False, str(error))
    if ways := unknown(names):
        return Result(
            "exports", False, f"the driver has functions that the libraries do not know: {', '.join(ways)}"
        )
    return Result("exports", True, f"{len(names)}, of which {len(names & wrapped())} are ours")


def _trial(volume: Path, inventory: Inventory) -> Iterator[Result]:
    try:
        seen = tried(volume, [CardLimits(gpu.id, SHARE_MIB * MIB) for gpu in inventory.gpus])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield Result("trial", False, f"a program cannot load the libraries: {error}")
        return
    if seen["cuInit"] == NO_DEVICE:
        yield Result("trial", True, "they load, and the driver reports no card")
    elif seen["cuInit"]:
        yield Result("trial", False, f"cuInit answers {seen['cuInit']}")
    else:
        right = seen["too much"] == 2 and seen["a part"] == 0
        text = f"one MiB over a share of {SHARE_MIB} MiB: CUresult {seen['too much']}; a half of it: {seen['a part']}"
        yield Result("trial", right, text)


def tried(volume: Path, cards: Sequence[CardLimits]) -> dict[str, Any]:
    """Return the results that a program gets from the libraries of a volume, with a share of its own.

    Raises:
        OSError, SubprocessError, ValueError: The program failed; the text has its output.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-shim-") as top:
        lib64 = Path(top, "lib64")
        lib64.mkdir()
        for path in (volume / "lib64").iterdir():
            os.symlink(path, lib64 / path.name)
        Region(Path(top, "region")).create(cards)
        done = subprocess.run(
            [sys.executable, "-I", "-c", _TRIAL, str(SHARE_MIB * MIB)],
            env={**os.environ, "LD_LIBRARY_PATH": str(lib64)},
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
            check=False,
        )
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["?"])[-1])
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
