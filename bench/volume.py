"""`python -m bench volume`: time to build, verify and mount a driver volume, and to copy its files as Mesos does."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from isolator.gpus.driver_volume import for_tasks
from mesos_gpu.cli import output
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.build import make
from volumes.discover import discover
from volumes.manifest import plan
from volumes.roots import Root
from volumes.store import Volume, verify
from volumes.version import driver_version

LOOKS: Final = 1000
#: Program of a child process, whose mount namespace ends with it.
_MOUNT: Final = """
import sys, time
from isolator.devices import view
view.enter()
began = time.perf_counter()
view.mount_volume(sys.argv[1])
print((time.perf_counter() - began) * 1000)
"""


@click.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Root of a file system with a driver; default: Debian's packages of the driver are downloaded (220 MB).",
)
@click.option(
    "--runs",
    default=7,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each measurement, of which the median counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def volume(root: Path | None, runs: int, as_json: bool) -> None:
    """Build a driver volume by hard links and by copies, verify it, and mount it for a task."""
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        if root is None:
            root = Path(top, "root")
            _fetch(root)
        result = _figures(root, Path(top), runs)
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "VALUE"), list(result.items()), empty="")


def _fetch(root: Path) -> None:
    from tests.doubles.driver_packages import ALL, CURRENT, install

    output.note(f"fetching and unpacking NVIDIA's driver {CURRENT} of Debian 12")
    install(root, *ALL)


def _figures(root: Path, top: Path, runs: int) -> dict[str, object]:
    files = discover(root)
    made = plan(files, driver_version(root, files))
    sources = [Root(root).outside(entry.source) for entry in made.entries]
    output.note(f"{runs} times {len(sources)} files of driver {made.version}")
    building = [_built(root, top / f"store{run}") for run in range(runs)]
    copying = [_copied(sources, top / f"copy{run}") for run in range(runs)]
    store = top / "store"
    volume = make(store, root).volume
    return {
        "files": len(volume.files),
        "links": len(volume.links),
        "mib": volume.size_bytes >> 20,
        "mib_of_disk": sum(file.size_bytes for file in volume.files if file.how == "copy") >> 20,
        "how": ", ".join({file.how for file in volume.files}),
        "discover_p50_ms": _median(lambda: discover(root), runs),
        "build_p50_ms": round(statistics.median(building), 1),
        "build_worst_ms": round(max(building), 1),
        "baseline_copy_p50_ms": round(statistics.median(copying), 1),
        "build_again_p50_ms": _median(lambda: make(store, root), runs),
        "verify_p50_ms": _median(lambda: verify(volume), runs),
        **_launch(store, volume, runs),
    }


def _built(root: Path, store: Path) -> float:
    took_ms = _ms(lambda: make(store, root))
    shutil.rmtree(store)
    return took_ms


def _copied(sources: list[Path], target: Path) -> float:
    """Copy files as Mesos does, without digests and links; return the milliseconds.

    nvidia-docker also copied files between file systems so.
    """
    target.mkdir()
    took_ms = _ms(lambda: [shutil.copy(source, target) for source in sources])
    shutil.rmtree(target)
    return took_ms


def _launch(store: Path, volume: Volume, runs: int) -> dict[str, float]:
    """Return the milliseconds that an existing volume adds to a launch."""
    env = {"MESOS_GPU_VOLUMES": str(store)}
    inventory = Inventory(driver_version=volume.version)
    took_ms = _ms(lambda: [for_tasks(env, inventory) for _ in range(LOOKS)])
    costs = {"launch_look_up_ms": round(took_ms / LOOKS, 4)}
    if os.geteuid() == 0:
        argv = [sys.executable, "-c", _MOUNT, str(volume.path)]
        mounts = [float(subprocess.check_output(argv, timeout=60)) for _ in range(runs)]
        costs["launch_mount_p50_ms"] = round(statistics.median(mounts), 3)
    return costs


def _median(work: Callable[[], object], runs: int) -> float:
    return round(statistics.median(_ms(work) for _ in range(runs)), 1)


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
