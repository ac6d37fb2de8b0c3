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
            "Build the volume of this host's driver if it is missing.",
        ),
        "list": (
            "mesos_gpu.cli.host.volume:list_volumes",
            "List this host's volumes and the tasks that use them.",
        ),
        "show": ("mesos_gpu.cli.host.volume", "Show the contents of a volume."),
        "verify": (
            "mesos_gpu.cli.host.volume:verify_volumes",
            "Compare volumes with their builds, byte by byte.",
        ),
        "gc": ("mesos_gpu.cli.host.volume", "Remove volumes that no task uses and no driver needs."),
        "plan": (
            "mesos_gpu.cli.host.volume_plan",
            "Show which files `build` would include, and why not others.",
        ),
    }


@click.group(cls=_Volume)
def volume() -> None:
    """Driver volumes: the NVIDIA libraries of this host, for tasks.

    Tasks see them at /usr/local/nvidia, read-only. The node monitor builds the volume of the running driver by itself,
    and removes those that an upgrade left behind; these commands show volumes and do this work beforehand.
    """


store_option: Final = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of volumes; default: MESOS_GPU_VOLUMES, else /var/lib/mesos/volumes.",
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
    help="Directory to search for libraries, relative to the root; may be repeated; default: "
    f"{LIBRARY_PATH}, else the usual places of drivers.",
)
program_path_option: Final = click.option(
    PROGRAM_OPTION,
    "programs",
    multiple=True,
    metavar="DIR",
    help="Directory to search for programs, relative to the root; may be repeated; default: "
    f"{PROGRAM_PATH}, else beside the libraries and the usual places.",
)
version_option: Final = click.option(
    "--driver-version",
    metavar="V",
    help="Version of the driver, if several are installed; default: the running one.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def root_of(root: Path | None) -> Path:
    """Return the path given with --root, or this host's driver root."""
    return root if root is not None else driver_root(os.environ)


def _store(path: Path | None) -> Store:
    return Store(path if path is not None else default_path(os.environ))


def _holders() -> dict[str, tuple[str, ...]]:
    """Return the holders of builds; does not create a ledger on a host that never ran a task."""
    if (directory() / "ledger.sqlite").exists():
        return holders(Ledger())
    return {name: (f"pid {pid}",) for name, pid in mounted().items()}


@click.command()
@root_option
@library_path_option
@program_path_option
@store_option
@version_option
@click.option("--anew", is_flag=True, help="Build the volume even if a valid one exists.")
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
    """Build the volume of this host's driver if it is missing.

    Files are hard links if the file system allows it, else reflinks, else copies. A task that uses an older build keeps
    it.
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
        warnings = [asdict(warning) for warning in built.warnings]
        facts = {"new": built.new, "took_s": round(built.took_s, 3), "warnings": warnings}
        output.document({**_described(built.volume), **facts})
        return
    volume = built.volume
    how = ", ".join(f"{number} by {way}" for way, number in sorted(built.how.items()))
    what = f"built in {built.took_s:.2f} s" if built.new else "exists already"
    output.line(f"{_store(store).path_of(volume.key)} {what}: {len(volume.files)} files ({how})")


def warn(warnings: Iterable[Excluded]) -> None:
    """Print files of the driver that were excluded and that tasks may miss."""
    for excluded in warnings:
        output.note(f"not included, although it belongs to this driver: {excluded.path}: {excluded.reason}")


@click.command("list")
@store_option
@json_option
def list_volumes(store: Path | None, as_json: bool) -> None:
    """List this host's volumes and the tasks that use them."""
    volumes, users = _store(store).volumes(), _holders()
    if as_json:
        output.document([{**_described(volume), "held_by": users.get(volume.name, ())} for volume in volumes])
        return
    rows = [
        (
            volume.key,
            volume.name,
            "yes" if volume.current else "no",
            len(volume.files),
            volume.size_bytes // _MIB,
            output.stamp(volume.built_at),
            ", ".join(users.get(volume.name, ())),
        )
        for volume in volumes
    ]
    headers = ("DRIVER", "BUILD", "CURRENT", "FILES", "MIB", "BUILT", "HELD BY")
    output.table(
        headers,
        rows,
        empty=f"No driver volume in {_store(store).path}; build one with: mesos-gpu volume build",
    )


@click.command()
@click.argument("version", required=False)
@store_option
@json_option
def show(version: str | None, store: Path | None, as_json: bool) -> None:
    """Show the contents of a volume.

    VERSION is a driver version; default: the running driver's, else the only volume.
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
        ("FILE", "GROUP", "BYTES", "HOW", "ALSO"),
        rows,
        empty="The volume is empty because its driver is simulated.",
    )


@click.command("verify")
@click.argument("version", required=False)
@store_option
@json_option
def verify_volumes(version: str | None, store: Path | None, as_json: bool) -> None:
    """Compare volumes with their builds, byte by byte.

    VERSION is a driver version; default: all volumes. Exit code 65 if something is missing, changed or added.
    """
    place = _store(store)
    volumes = (place.get(version),) if version else place.volumes()
    problems = {volume.name: verify(volume) for volume in volumes}
    if as_json:
        output.document({"volumes": {name: {"problems": wrong} for name, wrong in problems.items()}})
    else:
        for volume in volumes:
            wrong = problems[volume.name]
            output.line(
                f"{volume.name}: {'; '.join(wrong) if wrong else f'{len(volume.files)} files, all unchanged'}"
            )
    if any(problems.values()):
        raise Damaged(
            "volumes differ from their builds", remedy="rebuild them with: mesos-gpu volume build --anew"
        )


_WHICH = {True: "no task or container uses", False: "no task, container or driver needs"}  # by --all


@click.command()
@store_option
@click.option(
    "--all", "everything", is_flag=True, help="Also remove volumes of the running driver and of newer ones."
)
@yes_option
@json_option
def gc(store: Path | None, everything: bool, yes: bool, as_json: bool) -> None:
    """Remove volumes that no task uses and no driver needs.

    Volumes in use by a task or a container stay. Without --all, those of the running driver and of newer drivers stay
    too.
    """
    running = _running()

    def keep(volume: Volume) -> bool:
        needed = running is None or not is_older(volume.version, running)
        return volume.current and needed and not everything

    place = _store(store)
    output.ask(f"Remove the volumes of {place.path} that {_WHICH[everything]}?", yes=yes)
    with recorded("volume gc", f"volumes:{place.path}"):
        removed = place.collect(lambda: frozenset(_holders()), keep)
    if as_json:
        output.document({"removed": [volume.name for volume in removed]})
        return
    for volume in removed:
        output.line(f"removed {volume.path}")
    users = _holders()
    for volume in place.volumes():
        who = users.get(volume.name)
        output.note(
            f"kept {volume.name}: {', '.join(who) + ' uses it' if who else 'needed by the running or a newer driver'}"
        )


def _chosen(store: Store, version: str | None) -> Volume:
    if version is None:
        current = [volume.version for volume in store.volumes() if volume.current and not volume.variant]
        version = current[0] if len(current) == 1 else _running() or "the running driver"
    return store.get(version)


def _running() -> str | None:
    """Return the version of the running driver; None if not known."""
    return kernel_version(driver_root(os.environ)) or _noted()


def _noted() -> str | None:
    """Return the driver version that the node monitor read from NVML since boot; None if none, or if simulated."""
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
    """Return a description of the file system's mount options for a volume."""
    flags = os.statvfs(path).f_flag
    effects = [
        ("noexec: no library here can be loaded", flags & os.ST_NOEXEC),
        ("nodev, which is harmless: it contains no devices", flags & os.ST_NODEV),
        ("nosuid, which is harmless: tasks mount it so anyway", flags & os.ST_NOSUID),
        ("read-only: nothing can be built here", flags & os.ST_RDONLY),
    ]
    return "its file system is mounted " + (
        "; ".join(text for text, on in effects if on) or "without restrictions"
    )
