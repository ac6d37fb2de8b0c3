"""`mesos-gpu doctor`: checks whether this host can run GPU tasks."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from isolator.agent.tls import AgentTls
from isolator.gpus.ledger import directory
from isolator.node import doctor as checks
from isolator.node import mesos_roles
from isolator.node.findings import Finding, Level
from isolator.node.mesos_access import of_master
from isolator.node.monitor import probe_from
from isolator.node.private_files import CHECK, seen_by_others
from mesos_gpu.adapters.credentials import read
from mesos_gpu.cli.app import App, json_option
from mesos_gpu.cli.host.findings import told
from mesos_gpu.errors import MesosGpuError, Unavailable

_PATH: Final = click.Path(path_type=Path)


@click.command()
@click.option(
    "--master",
    metavar="HOST:PORT",
    envvar="MESOS_GPU_MASTER",
    help="Also check the authentication of this Mesos master and its agents.",
)
@click.option(
    "--mesos-credentials", type=_PATH, metavar="FILE", help="File with principal and secret for the master."
)
@click.option(
    "--private",
    "private",
    type=_PATH,
    multiple=True,
    metavar="PATH",
    help="Also check that other users cannot read this path, such as a backup; may be repeated.",
)
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    master: str | None,
    mesos_credentials: Path | None,
    private: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Check that this host can run GPU tasks, and Mesos' authentication."""
    findings = [
        *checks.diagnose(probe_from(os.environ), directory(), os.environ),
        *_scheduler_findings(ctx.ensure_object(App)),
        *_master_findings(master, mesos_credentials),
        *_quota_findings(ctx.ensure_object(App), master, mesos_credentials),
        *_file_findings(private),
    ]
    told(ctx, findings, as_json=as_json)


def _master_findings(master: str | None, file: Path | None) -> Iterator[Finding]:
    """Yield findings about the master, if one is given.

    Raises:
        BadConfiguration: The file of credentials is invalid.
    """
    if master:
        tls = AgentTls.from_environment(os.environ)
        proof = {"Authorization": read(file).header} if file else {}
        yield from of_master(master.partition("://")[2] or master, proof, tls, mesos_roles.looked_at)


def _quota_findings(app: App, master: str | None, file: Path | None) -> Iterator[Finding]:
    """Yield findings about quotas of roles against guarantees of queues, if a scheduler and a master are given."""
    if not master:
        return
    try:
        app.reach()
    except Unavailable:
        return
    from mesos_gpu.cli.mesos.quota import findings

    try:
        yield from findings(app, master, file)
    except MesosGpuError as error:
        yield Finding(mesos_roles.CHECK, Level.WARN, error.what, error.remedy)


def _file_findings(paths: Iterable[Path]) -> Iterator[Finding]:
    for path in paths:
        if not path.exists():
            yield Finding(CHECK, Level.FAIL, f"{path} does not exist", "give an existing path with --private")
        else:
            yield from seen_by_others(path, str(path), alone=True)


def _scheduler_findings(app: App) -> list[Finding]:
    """Return findings about the scheduler; none without one, because an agent's host need not know it."""
    try:
        reach = app.reach()
    except Unavailable:
        return []
    from mesos_gpu.cli.host.of_scheduler import of_scheduler

    return of_scheduler(reach)
