"""`mesos-gpu cluster`: what each host of a cluster needs, by a file that names them, and doing it over SSH."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import click

from mesos_gpu import __version__
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option, yes_option
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Duration
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.install.cluster.apply import Applied
    from mesos_gpu.install.cluster.description import Cluster, Package
    from mesos_gpu.install.cluster.difference import Difference
    from mesos_gpu.install.cluster.plan import HostPlan
    from mesos_gpu.install.cluster.record import Record
    from mesos_gpu.install.cluster.removal import Removal

_PARTS: Final = ("packages", "program", "files", "services")
_FILE: Final = click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE"
)
_SECRETS: Final = click.option(
    "--secrets",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the cluster's secrets; default: beside FILE, with its name and -secrets.",
)
_HOST: Final = click.option(
    "--host", "names", multiple=True, metavar="NAME", help="Only this host; may be repeated."
)


class _Cluster(Table):
    table: ClassVar = {
        "plan": ("mesos_gpu.cli.host.cluster", "Print what each host of a file needs; no host is asked."),
        "apply": ("mesos_gpu.cli.host.cluster", "Do over SSH what hosts of a file lack."),
    }


@click.group(cls=_Cluster)
def cluster() -> None:
    """Mesos, ZooKeeper and the scheduler on hosts that a file names."""


@click.command()
@_FILE
@_SECRETS
@_HOST
@click.option("--texts", is_flag=True, help="Also what is in the files; never secrets.")
@json_option
def plan(file: Path, directory: Path | None, names: tuple[str, ...], texts: bool, as_json: bool) -> None:
    """Print what each host of a file needs; no host is asked.

    Packages, files with modes and owners, commands, services and rules of a firewall, in the order in which
    `cluster apply` does it.
    """
    from mesos_gpu.install.cluster.removal import removals

    made = _planned(file, directory, names)
    package = made.cluster.package
    taken = removals(made.record, made.cluster, made.all)
    taken = [each for each in taken if not names or each.host.name in names]
    if as_json:
        hosts = [_document(each, package) for each in made.plans]
        output.document({"hosts": hosts, "removed": [_too_much(each) for each in taken]})
        return
    _note_release(package)
    for each in made.plans:
        _show(each, package, texts=texts)
    for removal in taken:
        _say_too_much(removal)


@click.command()
@_FILE
@_SECRETS
@_HOST
@yes_option
@click.option("--dry-run", is_flag=True, help="Ask hosts what they lack, print it, and change nothing.")
@click.option(
    "--only", type=click.Choice(_PARTS), multiple=True, help="Only this part of each host; may be repeated."
)
@click.option("--no-start", is_flag=True, help="Start and restart no service: for hosts without systemd.")
@click.option(
    "--keep", is_flag=True, help="Leave alone what is no longer in the file: hosts, and roles of hosts."
)
@click.option(
    "--gone",
    multiple=True,
    metavar="NAME",
    help="A host that left the file and never comes back: it is not asked, and forgotten; may be repeated.",
)
@click.option(
    "--deadline",
    type=Duration(zero=True),
    default="10m",
    show_default=True,
    help="Time after which what runs on a host that leaves starts elsewhere, as 90s or 2h; 0: at once.",
)
@click.option("--downgrade", is_flag=True, help="Let an earlier release take the place of a later one.")
@json_option
def apply(
    file: Path,
    directory: Path | None,
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    only: tuple[str, ...],
    no_start: bool,
    keep: bool,
    gone: tuple[str, ...],
    deadline: float,
    downgrade: bool,
    as_json: bool,
) -> None:
    """Do over SSH what hosts of a file lack.

    All hosts are asked before any is changed. What left the file since the last call is drained and taken away.
    Hosts are then done in the order of the plan; when one fails, its output is told, and no other is begun. Secrets
    are chosen once. A second call changes nothing.
    """
    from mesos_gpu.install.cluster.apply import Carrying
    from mesos_gpu.install.cluster.difference import Asked, Part, differences, surplus

    parts = [each for each in Part if (not only or each in only) and not (no_start and each is Part.SERVICES)]
    made = _planned(file, directory, names, choose=not dry_run)
    _see_gone(made, gone)
    asked = Asked(parts, downgrade, names, gone)
    removes = asked.removes and not keep
    taken = surplus(made.cluster, made.all, made.record, asked) if removes else []
    wanted = differences(made.cluster, made.plans, asked)
    _note_release(made.cluster.package)
    if not as_json:
        for each in wanted:
            _say_lacking(each)
        for removal in taken:
            _say_too_much(removal)
    if dry_run and as_json:
        hosts = [_lacking(each) for each in wanted]
        output.document({"hosts": hosts, "removed": [_too_much(each) for each in taken]})
    if dry_run:
        return
    output.ask(lambda: _question(wanted, taken), yes=yes, shown=True)
    carrying = Carrying(
        made.cluster,
        made.record,
        lambda name, what: output.note(f"{name}: {what}"),
        deadline_s=deadline,
        downgrade=downgrade,
        exact=removes,
    )
    applied = carrying.out(wanted, taken)
    _say(applied, as_json=as_json)
    click.get_current_context().exit(1 if applied.failed else 0)


def _question(wanted: "Sequence[Difference]", taken: "Sequence[Removal]") -> str:
    """What is asked before anything is done; "": that hosts are forgotten alone."""
    changed, less = sum(map(bool, wanted)), sum(map(bool, taken))
    change = f"Change {counted(changed, 'host')}" if changed else ""
    take = f"{'take' if change else 'Take'} what is not planned from {counted(less, 'host')}" if less else ""
    return " and ".join(each for each in (change, take) if each) + "?" if change or take else ""


class _Made(NamedTuple):
    """What a file came to: plans of the hosts that are named, and of all."""

    cluster: "Cluster"
    record: "Record"
    plans: "list[HostPlan]"
    all: "list[HostPlan]"


def _planned(file: Path, directory: Path | None, names: Sequence[str], *, choose: bool = False) -> _Made:
    """What FILE describes, what was applied, and plans of the hosts that are named, or of all.

    Raises:
        BadFile: It describes no cluster; all that is wrong is told.
    """
    from mesos_gpu.install.cluster import record
    from mesos_gpu.install.cluster.kept import Kept
    from mesos_gpu.install.cluster.plan import planned
    from mesos_gpu.install.cluster.reading import read

    directory = directory or file.parent / f"{file.stem}-secrets"
    before = record.read(directory)
    described = read(file, before)
    kept = Kept(directory, described.mesos_roles)
    known = {host.name for host in described.hosts} | before.hosts.keys()
    if strange := [name for name in names if name not in known]:
        raise click.BadParameter(
            f"{', '.join(strange)}: no host of {file}: {', '.join(sorted(known))}", param_hint="--host"
        )
    if choose and not kept.is_there:
        kept.create()
        output.note(f"{kept.directory}: the cluster's secrets were chosen; keep them as you keep keys")
    plans = planned(described, kept, before)
    return _Made(described, before, [each for each in plans if not names or each.host.name in names], plans)


def _see_gone(made: _Made, gone: Sequence[str]) -> None:
    """See that hosts that never come back are none of the file, and known.

    Raises:
        BadParameter: One is, or is not.
    """
    if strange := sorted({*gone} - made.record.hosts.keys()):
        raise click.BadParameter(f"{', '.join(strange)}: was not applied", param_hint="--gone")
    if there := sorted({each.host.name for each in made.all} & {*gone}):
        raise click.BadParameter(
            f"{', '.join(there)}: still in the file; remove it there", param_hint="--gone"
        )


def _note_release(package: "Package") -> None:
    """Say that another release is installed than the one whose units and executor are sent."""
    if package.release and package.release.version != __version__:
        output.note(
            f"the package is of {package.release.version}, and this program of {__version__}: services and settings "
            f"are this program's; better run that of {package.release.version}"
        )


def _document(each: "HostPlan", package: "Package") -> dict[str, Any]:
    host = each.host
    return {
        "name": host.name,
        "address": str(host.address),
        "roles": list(host.roles),
        "packages": list(each.packages),
        "program": each.program,
        "users": [name for name, _ in each.users],
        "files": [
            {
                "path": file.path,
                "mode": f"{file.mode:04o}",
                "owner": file.owner,
                "secret": file.secret or None,
                "sha256": file.sha256 or None,
                "text": None if file.secret else _text(file.data),
            }
            for file in each.files
        ],
        "commands": list(each.commands(package)),
        "services": [{"unit": service.name, "listens": service.address or None} for service in each.services],
        "firewall": [
            {"ports": opening.ports, "from": list(opening.sources), "who": opening.who}
            for opening in each.openings
        ],
    }


def _text(data: bytes | None) -> str | None:
    """The text of a file; None: it has none that people could read."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _too_much(each: "Removal") -> dict[str, Any]:
    return {"name": each.host.name, "whole": each.is_whole, "changes": list(each.lines())}


def _say_too_much(each: "Removal") -> None:
    name = f"{each.host.name} ({each.host.address})"
    output.line(
        f"{name}: is no longer in the file" if each.is_whole else f"{name}: has more than is in the file"
    )
    lines = list(each.lines()) or ["forget it; nothing is done there"]
    for line in lines:
        output.line(f"  {line}")


def _show(each: "HostPlan", package: "Package", *, texts: bool) -> None:
    host = each.host
    output.line(f"{host.name} ({host.address}): {', '.join(host.roles)}")
    if each.program and (release := package.release):
        depends = f", needs {release.depends}" if release.depends else ""
        output.line(f"  program: {release.name} {release.version} ({release.architecture}){depends}")
    for name, _ in each.users:
        output.line(f"  user: {name}")
    for file in each.files:
        secret = f"  secret: {file.secret}" if file.secret else ""
        output.line(f"  {file.mode:04o} {file.owner:<19} {file.path}{secret}")
        if texts and not file.secret and (text := _text(file.data)):
            for line in text.splitlines():
                output.line(f"       | {line}")
    for command in each.commands(package):
        output.line(f"  run: {command}")
    for service in each.services:
        output.line(f"  service: {service.name}" + (f" at {service.address}" if service.address else ""))
    for opening in each.openings:
        output.line(f"  firewall: TCP {opening.ports} from {', '.join(opening.sources)} ({opening.who})")


def _lacking(each: "Difference") -> dict[str, Any]:
    return {"name": each.plan.host.name, "changes": list(each.lines())}


def _say_lacking(each: "Difference") -> None:
    output.line(f"{each.plan.host.name}: " + ("" if each else "nothing to change"))
    for line in each.lines():
        output.line(f"  {line}")


def _say(applied: "Applied", *, as_json: bool) -> None:
    if as_json:
        failed = {name: str(error) for name, error in applied.failed.items()}
        output.document(
            {
                "changed": applied.done,
                "removed": applied.removed,
                "same": applied.same,
                "failed": failed,
                "left": applied.left,
                "leader": applied.leader or None,
            }
        )
        return
    if applied.done:
        output.line(f"Changed: {', '.join(applied.done)}")
    if applied.removed:
        output.line(f"Removed: {', '.join(applied.removed)}")
    if applied.leader:
        output.line(f"The scheduler of {applied.leader} leads.")
    for error in applied.failed.values():
        output.error(error)
    if applied.left:
        output.line(f"Not done yet: {', '.join(applied.left)}")
