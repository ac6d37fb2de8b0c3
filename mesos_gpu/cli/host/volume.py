"""`mesos-gpu volume`: the driver volumes of this host."""

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import click

from isolator.devices.facts import read_inventory
from isolator.gpus.driver_volume import driver_root, holders, is_older, mounted
from isolator.gpus.ledger import Ledger, directory
from mesos_gpu.cli import output
from mesos_gpu.cli.app import yes_option
from mesos_gpu.cli.records.on_host import recorded
from mesos_gpu.cli.table import Table
from mesos_gpu.errors import Damaged, MesosGpuError
from volumes.keys import default_path
from volumes.model import Excluded, Link
from volumes.places import LIBRARY_OPTION, LIBRARY_PATH, PROGRAM_OPTION, PROGRAM_PATH, given_by
from volumes.store import Store, Volume, verify
from volumes.version import kernel_version

_F = TypeVar("_F", bound=Callable[..., Any])
_MIB: Final = 1 << 20


class _Volume(Table):
    table: ClassVar = {
        "build": (
            "mesos_gpu.cli.host.volume",
            "Build the volume of this host's driver, or see that it is there.",
        ),
        "list": ("mesos_gpu.cli.host.volume:list_volumes", "List this host's volumes, and who has them."),
        "show": ("mesos_gpu.cli.host.volume", "Show what a volume holds."),
        "verify": (
            "mesos_gpu.cli.host.volume:verify_volumes",
            "Compare volumes with what was built, byte by byte.",
        ),
        "gc": ("mesos_gpu.cli.host.volume", "Remove the volumes that nobody has and no driver needs."),
        "plan": ("mesos_gpu.cli.host.volume_plan", "Say what `build` would take, and why not the rest."),
    }


@click.group(cls=_Volume)
def volume() -> None:
    """Driver volumes: the NVIDIA libraries of this host, for tasks.

    A task has them at /usr/local/nvidia, read-only. The node monitor builds the volume of the running driver by
    itself, and removes what an upgrade left behind;
    these commands are for looking at it, and for doing it beforehand.
    """


store_option: Final = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory of volumes; default: MESOS_GPU_VOLUMES, else /var/lib/mesos/volumes.",
)
root_option: Final = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Root of the host's file system; default: MESOS_GPU_DRIVER_ROOT, else /.",
)
library_path_option: Final = click.option(
    LIBRARY_OPTION,
    "libraries",
    multiple=True,
    metavar="DIR",
    help="Search for libraries in this directory only, as seen from the root; may be repeated; default: "
    f"{LIBRARY_PATH}, else wherever drivers are put.",
)
program_path_option: Final = click.option(
    PROGRAM_OPTION,
    "programs",
    multiple=True,
    metavar="DIR",
    help="Search for programs in this directory only, as seen from the root; may be repeated; default: "
    f"{PROGRAM_PATH}, else beside the libraries and wherever programs are put.",
)
version_option: Final = click.option(
    "--driver-version", metavar="V", help="Which driver, of those that are there; default: the one that runs."
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def root_of(root: Path | None) -> Path:
    """The root that --root names, or this host's driver root."""
    return root if root is not None else driver_root(os.environ)


def _store(path: Path | None) -> Store:
    return Store(path if path is not None else default_path(os.environ))


def _holders() -> dict[str, tuple[str, ...]]:
    """Holders of the builds. On a host that never ran a task there is no ledger, and none is made."""
    if (directory() / "ledger.sqlite").exists():
        return holders(Ledger())
    return {name: (f"pid {pid}",) for name, pid in mounted().items()}


@click.command()
@root_option
@library_path_option
@program_path_option
@store_option
@version_option
@click.option("--anew", is_flag=True, help="Also if it is there and looks as it should.")
@json_option
def build(
    root: Path | None,
    libraries: tuple[str, ...],
    programs: tuple[str, ...],
    store: Path | None,
    driver_version: str | None,
    anew: bool,
    as_json: bool,
) -> None:
    """Build the volume of this host's driver, or see that it is there.

    Files are hard links where the file system allows it, else share blocks (reflink), else are copies. A task
    that has an older build keeps it.
    """
    from volumes.build import make

    with recorded("volume build", f"volumes:{_store(store).path}"):
        built = make(
            _store(store).path,
            root_of(root),
            driver_version,
            nvml=_noted() if root_of(root) == Path("/") else None,
            given=given_by(os.environ, libraries, programs),
            held=lambda: frozenset(_holders()),
            anew=anew,
        )
    warn(built.warnings)
    if as_json:
        warnings = [asdict(each) for each in built.warnings]
        told = {"new": built.new, "took_s": round(built.took_s, 3), "warnings": warnings}
        output.document({**_described(built.volume), **told})
        return
    volume = built.volume
    how = ", ".join(f"{number} by {way}" for way, number in sorted(built.how.items()))
    what = f"built in {built.took_s:.2f} s" if built.new else "is there already"
    output.line(f"{_store(store).path_of(volume.key)} {what}: {len(volume.files)} files ({how})")


def warn(warnings: Iterable[Excluded]) -> None:
    """Print the files of the driver that are left out and that tasks may miss."""
    for each in warnings:
        output.note(f"left out, and of this driver: {each.path}: {each.reason}")


@click.command("list")
@store_option
@json_option
def list_volumes(store: Path | None, as_json: bool) -> None:
    """List this host's volumes, and who has them."""
    volumes, held = _store(store).volumes(), _holders()
    if as_json:
        output.document([{**_described(each), "held_by": held.get(each.name, ())} for each in volumes])
        return
    rows = [
        (
            each.key,
            each.name,
            "yes" if each.current else "no",
            len(each.files),
            each.size_bytes // _MIB,
            output.stamp(each.built_at),
            ", ".join(held.get(each.name, ())),
        )
        for each in volumes
    ]
    headers = ("DRIVER", "BUILD", "CURRENT", "FILES", "MIB", "BUILT", "HELD BY")
    output.table(headers, rows, empty=f"There is no driver volume in {_store(store).path}.")


@click.command()
@click.argument("version", required=False)
@store_option
@json_option
def show(version: str | None, store: Path | None, as_json: bool) -> None:
    """Show what a volume holds.

    VERSION is of the driver; default: the one that runs, else the only one there.
    """
    volume = _chosen(_store(store), version)
    if as_json:
        files = [asdict(file) for file in volume.files]
        output.document({**_described(volume), "files": files, "links": dict(volume.links)})
        return
    output.line(f"{volume.path}")
    output.line(f"driver {volume.version} from {volume.root}, {volume.digest}")
    output.line(_place(volume.path))
    names: dict[str, list[str]] = {}
    for link, to in volume.links.items():
        names.setdefault(Link(link, to).file, []).append(Link(link, to).name)
    rows = [
        (file.target, file.group, file.size_bytes, file.how, ", ".join(names.get(file.target, ())))
        for file in volume.files
    ]
    output.table(
        ("FILE", "GROUP", "BYTES", "HOW", "ALSO"), rows, empty="It is empty: its driver is simulated."
    )


@click.command("verify")
@click.argument("version", required=False)
@store_option
@json_option
def verify_volumes(version: str | None, store: Path | None, as_json: bool) -> None:
    """Compare volumes with what was built, byte by byte.

    VERSION is of the driver; default: all volumes. Exit code 65: something is missing, changed or added.
    """
    place = _store(store)
    volumes = (place.get(version),) if version else place.volumes()
    problems = {each.name: verify(each) for each in volumes}
    if as_json:
        output.document({"volumes": {name: {"problems": wrong} for name, wrong in problems.items()}})
    else:
        for each in volumes:
            wrong = problems[each.name]
            output.line(
                f"{each.name}: {'; '.join(wrong) if wrong else f'{len(each.files)} files as they were built'}"
            )
    if any(problems.values()):
        raise Damaged("not all is as it was built", remedy="mesos-gpu volume build --anew")


_WHICH = {True: "no task or container has", False: "no task, container or driver needs"}  # by --all


@click.command()
@store_option
@click.option("--all", "everything", is_flag=True, help="Also the running driver's, and newer ones.")
@yes_option
@json_option
def gc(store: Path | None, everything: bool, yes: bool, as_json: bool) -> None:
    """Remove the volumes that nobody has and no driver needs.

    What a task or a container has stays. So do the running driver's volume and the volumes of newer drivers,
    unless --all is given.
    """
    running = _running()

    def keep(each: Volume) -> bool:
        needed = running is None or not is_older(each.version, running)
        return each.current and needed and not everything

    place = _store(store)
    output.ask(f"Remove the volumes of {place.path} that {_WHICH[everything]}?", yes=yes)
    with recorded("volume gc", f"volumes:{place.path}"):
        removed = place.collect(lambda: frozenset(_holders()), keep)
    if as_json:
        output.document({"removed": [each.name for each in removed]})
        return
    for each in removed:
        output.line(f"removed {each.path}")
    held = _holders()
    for each in place.volumes():
        who = held.get(each.name)
        output.note(
            f"kept {each.name}: {', '.join(who) + ' has it' if who else 'the driver is in use, or to come'}"
        )


def _chosen(store: Store, version: str | None) -> Volume:
    if version is None:
        current = [each.version for each in store.volumes() if each.current and not each.variant]
        version = current[0] if len(current) == 1 else _running() or "the running driver"
    return store.get(version)


def _running() -> str | None:
    """The version of the driver that runs, as far as this host says."""
    return kernel_version(driver_root(os.environ)) or _noted()


def _noted() -> str | None:
    """What NVML said to the node monitor since this boot, if that is of a real driver."""
    try:
        noted = read_inventory(directory())
    except MesosGpuError:
        return None
    return noted.driver_version if noted.source == "nvml" else None


def _described(volume: Volume) -> dict[str, Any]:
    return {
        "version": volume.version,
        "variant": volume.variant,
        "build": volume.name,
        "path": str(volume.path),
        "digest": volume.digest,
        "root": volume.root,
        "current": volume.current,
        "simulated": volume.simulated,
        "built_at": volume.built_at,
        "files_count": len(volume.files),
        "size_bytes": volume.size_bytes,
    }


def _place(path: Path) -> str:
    """What the file system's mount options mean for a volume."""
    flags = os.statvfs(path).f_flag
    said = [
        ("noexec: no library here can be loaded", flags & os.ST_NOEXEC),
        ("nodev, which does no harm: there are no devices in it", flags & os.ST_NODEV),
        ("nosuid, which does no harm: tasks have it so at any rate", flags & os.ST_NOSUID),
        ("read-only: nothing can be built here", flags & os.ST_RDONLY),
    ]
    return "its file system is mounted " + (
        "; ".join(text for text, on in said if on) or "without restrictions"
    )
