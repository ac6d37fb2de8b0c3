"""`mesos-gpu cluster`: what each host of a cluster needs, by a file that names them, and doing it over SSH."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.table import Table
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.install.cluster.apply import Applied, Difference
    from mesos_gpu.install.cluster.description import Cluster, Package
    from mesos_gpu.install.cluster.plan import HostPlan

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
    described, plans = _planned(file, directory, names)
    if as_json:
        output.document({"hosts": [_document(each, described.package) for each in plans]})
        return
    for each in plans:
        _show(each, described.package, texts=texts)


@click.command()
@_FILE
@_SECRETS
@_HOST
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Ask hosts what they lack, print it, and change nothing.")
@click.option(
    "--only", type=click.Choice(_PARTS), multiple=True, help="Only this part of each host; may be repeated."
)
@click.option("--no-start", is_flag=True, help="Start and restart no service: for hosts without systemd.")
@json_option
def apply(
    file: Path,
    directory: Path | None,
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    only: tuple[str, ...],
    no_start: bool,
    as_json: bool,
) -> None:
    """Do over SSH what hosts of a file lack.

    All hosts are asked before any is changed. Hosts are then done in the order of the plan; when one fails, its
    output is told, and no other is begun. Secrets are chosen once. A second call changes nothing.
    """
    from mesos_gpu.install.cluster.apply import Part, carry_out, differences

    parts = [each for each in Part if (not only or each in only) and not (no_start and each is Part.SERVICES)]
    described, plans = _planned(file, directory, names, choose=not dry_run)
    wanted = differences(described, plans, parts)
    if not as_json:
        for each in wanted:
            _say_lacking(each)
    if dry_run or not any(wanted):
        if as_json:
            output.document({"hosts": [_lacking(each) for each in wanted]})
        return
    count = counted(sum(map(bool, wanted)), "host")
    if not yes:
        click.confirm(f"Change {count}?", abort=True, err=True)
    applied = carry_out(described, wanted, lambda name, what: output.note(f"{name}: {what}"))
    _say(applied, as_json=as_json)
    click.get_current_context().exit(1 if applied.failed else 0)


def _planned(
    file: Path, directory: Path | None, names: Sequence[str], *, choose: bool = False
) -> "tuple[Cluster, list[HostPlan]]":
    """What FILE describes, and plans of the hosts that are named, or of all.

    Raises:
        BadFile: It describes no cluster; all that is wrong is told.
    """
    from mesos_gpu.install.cluster.kept import Kept
    from mesos_gpu.install.cluster.plan import planned
    from mesos_gpu.install.cluster.reading import read

    described = read(file)
    known = {host.name for host in described.hosts}
    if strange := [name for name in names if name not in known]:
        raise click.BadParameter(
            f"{', '.join(strange)}: no host of {file}: {', '.join(sorted(known))}", param_hint="--host"
        )
    kept = Kept(directory or file.parent / f"{file.stem}-secrets", described.role)
    if choose and not kept.is_there:
        kept.create()
        output.note(f"{kept.directory}: the cluster's secrets were chosen; keep them as you keep keys")
    plans = planned(described, kept)
    return described, [each for each in plans if not names or each.host.name in names]


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


def _show(each: "HostPlan", package: "Package", *, texts: bool) -> None:
    host = each.host
    output.line(f"{host.name} ({host.address}): {', '.join(host.roles)}")
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
            {"changed": applied.done, "same": applied.same, "failed": failed, "left": applied.left}
        )
        return
    if applied.done:
        output.line(f"Changed: {', '.join(applied.done)}")
    for error in applied.failed.values():
        output.error(error)
    if applied.left:
        output.line(f"Nothing was done on {', '.join(applied.left)}.")
