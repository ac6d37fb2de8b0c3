"""`mesos-gpu cluster`: plans for the hosts of a cluster described in a file, and their execution over SSH."""

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
    help="Directory of the cluster's secrets; default: beside FILE, such as cluster-secrets for cluster.yaml.",
)
_HOST: Final = click.option(
    "--host", "names", multiple=True, metavar="NAME", help="Only this host; may be repeated."
)


class _Cluster(Table):
    table: ClassVar = {
        "plan": (
            "mesos_gpu.cli.host.cluster",
            "Print what each host of a file needs, without contacting the hosts.",
        ),
        "apply": ("mesos_gpu.cli.host.cluster", "Make the hosts of a file match it, over SSH."),
    }


@click.group(cls=_Cluster)
def cluster() -> None:
    """Mesos, ZooKeeper and schedulers on the hosts that a file lists."""


@click.command()
@_FILE
@_SECRETS
@_HOST
@click.option("--texts", is_flag=True, help="Also print the contents of files, except secrets.")
@json_option
def plan(file: Path, directory: Path | None, names: tuple[str, ...], texts: bool, as_json: bool) -> None:
    """Print what each host of a file needs, without contacting the hosts.

    Lists packages, files with modes and owners, commands, services and firewall rules, in the order in which
    `cluster apply` handles them.
    """
    from mesos_gpu.install.cluster.removal import removals

    plan_set = _planned(file, directory, names)
    package = plan_set.cluster.package
    removals_planned = removals(plan_set.record, plan_set.cluster, plan_set.all)
    removals_planned = [removal for removal in removals_planned if not names or removal.host.name in names]
    if as_json:
        hosts = [_document(plan, package) for plan in plan_set.plans]
        output.document({"hosts": hosts, "removed": [_too_much(plan) for plan in removals_planned]})
        return
    _note_release(package)
    for host_plan in plan_set.plans:
        _show(host_plan, package, texts=texts)
    for removal in removals_planned:
        _say_too_much(removal)


@click.command()
@_FILE
@_SECRETS
@_HOST
@yes_option
@click.option(
    "--dry-run", is_flag=True, help="Ask hosts for differences and print them, without changing anything."
)
@click.option(
    "--only", type=click.Choice(_PARTS), multiple=True, help="Apply only this part; may be repeated."
)
@click.option("--no-start", is_flag=True, help="Do not start or restart services, for hosts without systemd.")
@click.option(
    "--keep", is_flag=True, help="Do not remove hosts and roles of hosts that are no longer in the file."
)
@click.option(
    "--gone",
    multiple=True,
    metavar="NAME",
    help="Forget a host that was removed from the file and no longer exists, without contacting it; may be repeated.",
)
@click.option(
    "--deadline",
    type=Duration(zero=True),
    default="10m",
    show_default=True,
    help="Time after which jobs on a removed host are restarted elsewhere, such as 90s or 2h; 0: at once.",
)
@click.option("--downgrade", is_flag=True, help="Allow replacing a release by an earlier one.")
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
    """Make the hosts of a file match it, over SSH.

    All hosts are examined before any is changed. Hosts and roles removed from the file since the last call are drained
    and removed. Hosts are then changed in the order of the plan; if one fails, its output is shown and no further
    host is changed. Secrets are generated only once. A second call changes nothing.
    """
    from mesos_gpu.install.cluster.apply import ClusterApply
    from mesos_gpu.install.cluster.difference import Asked, Part, differences, surplus

    parts = [part for part in Part if (not only or part in only) and not (no_start and part is Part.SERVICES)]
    plan_set = _planned(file, directory, names, choose=not dry_run)
    _see_gone(plan_set, gone)
    request = Asked(parts, downgrade, names, gone)
    removes = request.removes and not keep
    removals_planned = surplus(plan_set.cluster, plan_set.all, plan_set.record, request) if removes else []
    changes = differences(plan_set.cluster, plan_set.plans, request)
    _note_release(plan_set.cluster.package)
    if not as_json:
        for difference in changes:
            _say_lacking(difference)
        for removal in removals_planned:
            _say_too_much(removal)
    if dry_run and as_json:
        hosts = [_lacking(difference) for difference in changes]
        output.document({"hosts": hosts, "removed": [_too_much(removal) for removal in removals_planned]})
    if dry_run:
        return
    output.ask(lambda: _question(changes, removals_planned), yes=yes, shown=True)
    carrying = ClusterApply(
        plan_set.cluster,
        plan_set.record,
        lambda name, what: output.note(f"{name}: {what}"),
        deadline_s=deadline,
        downgrade=downgrade,
        exact=removes,
    )
    applied = carrying.out(changes, removals_planned)
    _say(applied, as_json=as_json)
    click.get_current_context().exit(1 if applied.failed else 0)


def _question(wanted: "Sequence[Difference]", taken: "Sequence[Removal]") -> str:
    """Return the confirmation question; "" if hosts are only forgotten."""
    changed, less = sum(map(bool, wanted)), sum(map(bool, taken))
    change = f"Change {counted(changed, 'host')}" if changed else ""
    take = f"{'take' if change else 'Take'} unplanned parts from {counted(less, 'host')}" if less else ""
    return " and ".join(phrase for phrase in (change, take) if phrase) + "?" if change or take else ""


class _Made(NamedTuple):
    """Plans for a file: of the selected hosts, and of all hosts."""

    cluster: "Cluster"
    record: "Record"
    plans: "list[HostPlan]"
    all: "list[HostPlan]"


def _planned(file: Path, directory: Path | None, names: Sequence[str], *, choose: bool = False) -> _Made:
    """Read FILE and the record of what was applied, and plan the hosts `names`, or all.

    Raises:
        BadFile: The file does not describe a cluster; all problems are listed.
    """
    from mesos_gpu.install.cluster import record
    from mesos_gpu.install.cluster.kept import Kept
    from mesos_gpu.install.cluster.plan import planned
    from mesos_gpu.install.cluster.reading import read

    directory = directory or file.parent / f"{file.stem}-secrets"
    before = record.read(directory)
    described = read(file, before)
    kept = Kept(directory, described.mesos_roles)
    known_hosts = {host.name for host in described.hosts} | before.hosts.keys()
    if unknown := [name for name in names if name not in known_hosts]:
        raise click.BadParameter(
            f"{', '.join(unknown)}: not in {file}, which has {', '.join(sorted(known_hosts))}",
            param_hint="--host",
        )
    if choose and not kept.is_there:
        kept.create()
        output.note(
            f"{kept.directory}: the cluster's secrets were generated; protect this directory like private keys"
        )
    plans = planned(described, kept, before)
    return _Made(described, before, [plan for plan in plans if not names or plan.host.name in names], plans)


def _see_gone(made: _Made, gone: Sequence[str]) -> None:
    """Check that hosts given with --gone were applied before, and are no longer in the file.

    Raises:
        BadParameter: A host was never applied, or is still in the file.
    """
    if unknown := sorted({*gone} - made.record.hosts.keys()):
        raise click.BadParameter(
            f"{', '.join(unknown)}: unknown host, nothing was ever applied to it", param_hint="--gone"
        )
    if there := sorted({plan.host.name for plan in made.all} & {*gone}):
        raise click.BadParameter(
            f"{', '.join(there)}: still in the file; remove it there", param_hint="--gone"
        )


def _note_release(package: "Package") -> None:
    """Warn if the installed package is of another release than this program, which provides units and executor."""
    if package.release and package.release.version != __version__:
        output.note(
            f"the package is of release {package.release.version}, but this program of {__version__} provides "
            "services and "
            f"settings; better run mesos-gpu of {package.release.version}"
        )


def _document(each: "HostPlan", package: "Package") -> dict[str, Any]:
    """Return the plan of a host for --json, without the texts of secret files."""
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
    """Return the text of a file; None if it is not text."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _too_much(each: "Removal") -> dict[str, Any]:
    return {"name": each.host.name, "whole": each.is_whole, "changes": list(each.lines())}


def _say_too_much(each: "Removal") -> None:
    name = f"{each.host.name} ({each.host.address})"
    output.line(
        f"{name}: is no longer in the file"
        if each.is_whole
        else f"{name}: has parts that are no longer in the file"
    )
    lines = list(each.lines()) or ["forget it; nothing is changed on the host"]
    for line in lines:
        output.line(f"  {line}")


def _show(each: "HostPlan", package: "Package", *, texts: bool) -> None:
    """Print the plan of a host; `texts` includes the contents of files, except secret ones."""
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
    """Print the result of applying changes."""
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
