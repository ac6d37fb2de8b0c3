"""`mesos-gpu mesos`: a Mesos master or agent as a service of this host, and checks of the host for them."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.host.findings import told
from mesos_gpu.cli.table import Table

if TYPE_CHECKING:
    from mesos_gpu.libmesos.service import Service

_ANY_FLAG: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_FLAGS: Final = click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[--FLAG=VALUE]...")
_BINARIES: Final = click.option(
    "--mesos-binaries",
    "binaries",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    envvar="MESOS_GPU_MESOS_BINARIES",
    help="Run mesos-master or mesos-agent from this directory instead of this package's.",
)
_OPEN: Final = click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Run without authentication, for a network where all users are trusted.",
)


class _Mesos(Table):
    table: ClassVar = {
        "master": ("mesos_gpu.cli.host.mesos", "Run a Mesos master on this host, until it is stopped."),
        "agent": ("mesos_gpu.cli.host.mesos", "Run a Mesos agent on this host, until it is stopped."),
        "check": (
            "mesos_gpu.cli.host.mesos",
            "Check that this host is suitable for a master or an agent with these flags.",
        ),
        "quota": (
            "mesos_gpu.cli.mesos.quota",
            "Limits and weights of Mesos' roles, derived from the tree of queues.",
        ),
        "reserve": (
            "mesos_gpu.cli.mesos.reserve",
            "Reservations of a pool's agents, so that other frameworks do not strand its GPUs.",
        ),
    }


@click.group(cls=_Mesos)
def mesos() -> None:
    """Mesos on this host: a master, an agent."""


@click.command(context_settings=_ANY_FLAG)
@_BINARIES
@_OPEN
@_FLAGS
def master(binaries: Path | None, is_open: bool, flags: tuple[str, ...]) -> None:
    r"""Run a Mesos master on this host, until it is stopped.

    FLAGS are those of mesos-master, also as variables MESOS_NAME; options of this command come first. Several masters
    need --zk and --quorum: they elect a leader, and a quorum of them stores the registered agents.

    \b
    mesos-gpu mesos master --ip=127.0.0.1 --work_dir=/var/lib/mesos-master
    mesos-gpu mesos master --zk=zk://z1:2181,z2:2181,z3:2181/mesos --quorum=2 \
        --ip=10.0.0.1 --work_dir=/var/lib/mesos-master
    """
    from mesos_gpu.libmesos.service import Service

    _run(Service("master", flags, binaries), is_open)


@click.command(context_settings=_ANY_FLAG)
@_BINARIES
@_OPEN
@_FLAGS
def agent(binaries: Path | None, is_open: bool, flags: tuple[str, ...]) -> None:
    r"""Run a Mesos agent on this host, until it is stopped.

    FLAGS are those of mesos-agent, also as variables MESOS_NAME; options of this command come first. `mesos-gpu install
    agent` prints them for a GPU host. The agent runs jobs of this package; commands of other frameworks need Mesos' own
    mesos-executor.

    \b
    mesos-gpu mesos agent --master=zk://z1:2181,z2:2181,z3:2181/mesos --ip=10.0.0.4 --work_dir=/var/lib/mesos
    """
    from mesos_gpu.libmesos.service import Service

    _run(Service("agent", flags, binaries), is_open)


@click.command(context_settings=_ANY_FLAG)
@_BINARIES
@json_option
@click.argument("kind", type=click.Choice(("master", "agent")))
@_FLAGS
@click.pass_context
def check(
    ctx: click.Context, binaries: Path | None, as_json: bool, kind: str, flags: tuple[str, ...]
) -> None:
    r"""Check that this host is suitable for a master or an agent with these flags.

    Checks address and port, disk, authentication, ZooKeeper, the quorum together with running masters, and cgroups.
    Nothing is started or changed; exit code 1 if something would fail.

    \b
    mesos-gpu mesos check master --zk=zk://z1:2181,z2:2181,z3:2181/mesos --quorum=2 --ip=10.0.0.1 \
        --work_dir=/var/lib/mesos-master
    """
    from mesos_gpu.libmesos.check import diagnose
    from mesos_gpu.libmesos.service import Service

    told(ctx, diagnose(Service(kind, flags, binaries)), as_json=as_json)


def _run(service: "Service", is_open: bool) -> None:
    """Print what is run and the firewall rules it needs, then replace this process by it.

    Raises:
        BadConfiguration: The service would be open to other hosts, or a flag cannot be used.
        Unavailable: Mesos is not installed.
    """
    if not is_open:
        service.check_names()
    for line in (*service.beside(), *service.firewall()):
        output.note(line)
    service.meet(output.note)
    service.become()
