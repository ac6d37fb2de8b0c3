"""`mesos-gpu install`: what hosts of a real cluster need. It asks no scheduler, and changes nothing of this host."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.table import Table
from mesos_gpu.scheduler.options import parse

if TYPE_CHECKING:
    from mesos_gpu.install.files import HostFile

_MASTER: Final = click.option(
    "--master", required=True, metavar="HOST:PORT|zk://…", envvar="MESOS_GPU_MASTER", help="The Mesos master."
)
_INTO: Final = click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files below this directory, with their modes, instead of printing them.",
)
_SETTINGS: Final = click.option(
    "--settings",
    "settings_only",
    is_flag=True,
    help="Only the file of settings: the Debian packages have the others.",
)
_TOKENS: Final = click.option(
    "--executor-tokens",
    "tokens",
    is_flag=True,
    help="Agents give executors tokens of their own: for a Mesos that was built with OpenSSL.",
)


class _Install(Table):
    table: ClassVar = {
        "executor": (
            "mesos_gpu.cli.host.install",
            "Write mesos-gpu-executor.pyz: all that agents run, in one file.",
        ),
        "agent": ("mesos_gpu.cli.host.install", "Print what a GPU host needs: service, flags, directories."),
        "master": (
            "mesos_gpu.cli.host.install",
            "Print what the host of a Mesos master needs: service, flags, directories.",
        ),
        "scheduler": (
            "mesos_gpu.cli.host.install",
            "Print what the scheduler's host needs: service, settings, user.",
        ),
        "secrets": (
            "mesos_gpu.cli.host.install",
            "Write names, secrets and lists with which Mesos asks everybody who they are.",
        ),
    }


@click.group(cls=_Install)
def install() -> None:
    """Make or print what a real cluster's hosts need; nothing is installed."""


@click.command()
@click.argument("into", default=".", type=click.Path(path_type=Path), metavar="[FILE|DIRECTORY]")
@json_option
def executor(into: Path, as_json: bool) -> None:
    """Write mesos-gpu-executor.pyz: all that agents run, in one file.

    It needs Python 3.11 or later, and nothing else. Put it where the scheduler's --executor-archive says: on each
    agent, or where they can fetch it.
    """
    from mesos_gpu.install.archive import build

    path = build(into)
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if as_json:
        output.document({"path": str(path), "bytes": len(data), "sha256": digest})
        return
    output.line(f"{path}: {len(data) / 1024:.0f} KiB")
    output.line(
        f"mesos-gpu scheduler --executor-archive {path.resolve()}        # that path on each agent; or"
    )
    output.line(f"mesos-gpu scheduler --executor-archive https://HOST/{path.name}#sha256={digest}")


@click.command()
@_MASTER
@click.option(
    "--gpus", required=True, type=click.IntRange(0), metavar="N", help="Number of GPUs of the host."
)
@click.option(
    "--cgroups",
    type=click.Choice(("v1", "v2")),
    help="Version of the host's cgroups; default: what this host has at /sys/fs/cgroup.",
)
@click.option(
    "--authentication/--no-authentication",
    default=True,
    show_default=True,
    help="Whether the agent asks everybody for name and secret. Without, whoever reaches its port is root there.",
)
@_TOKENS
@click.option(
    "--binary",
    default="/usr/sbin/mesos-agent",
    show_default=True,
    help="The host's mesos-agent, or '/opt/mesos-gpu/bin/mesos-gpu mesos agent'.",
)
@click.option("--ip", default="", help="Address at which masters reach it; default: that of its name.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of executors, as MESOS_GPU_VOLUME_ROOTS=/data:ro; repeatable.",
)
@_SETTINGS
@_INTO
@json_option
def agent(
    master: str,
    gpus: int,
    cgroups: str | None,
    authentication: bool,
    tokens: bool,
    binary: str,
    ip: str,
    settings: tuple[str, ...],
    settings_only: bool,
    into: Path | None,
    as_json: bool,
) -> None:
    """Print what a GPU host needs: service, flags, directories.

    The service runs the host's own mesos-agent, so that tasks outlive its restart. With cgroups of version 2, Mesos
    1.11 limits neither memory nor processors of tasks, and images are run by the executors.
    """
    from mesos_gpu.install import agent as of_agent

    host = of_agent.AgentHost(
        master,
        gpus,
        cgroups or ("v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"),
        authentication,
        tokens,
        binary,
        environment=dict(_setting(each) for each in settings),
        ip=ip,
    )
    _hand_out(of_agent.files(host), of_agent.STEPS, settings_only, into, as_json)


@click.command()
@click.option("--ip", required=True, help="Address at which others reach it.")
@click.option(
    "--zk",
    default="",
    metavar="zk://…",
    help="ZooKeeper servers and path at which several masters elect a leader.",
)
@click.option("--quorum", type=click.IntRange(1), default=1, help="More than half of the masters, as 2 of 3.")
@click.option(
    "--authentication/--no-authentication",
    default=True,
    show_default=True,
    help="Whether the master asks everybody for name and secret.",
)
@click.option(
    "--binary",
    default="/usr/sbin/mesos-master",
    show_default=True,
    help="The host's mesos-master, or '/opt/mesos-gpu/bin/mesos-gpu mesos master'.",
)
@_SETTINGS
@_INTO
@json_option
def master(
    ip: str,
    zk: str,
    quorum: int,
    authentication: bool,
    binary: str,
    settings_only: bool,
    into: Path | None,
    as_json: bool,
) -> None:
    """Print what the host of a Mesos master needs: service, flags, directories."""
    from mesos_gpu.install import master as of_master

    host = of_master.MasterHost(ip, zk, quorum, authentication, binary)
    _hand_out(of_master.files(host), of_master.STEPS, settings_only, into, as_json)


@click.command()
@_MASTER
@click.option("--program", default="/opt/mesos-gpu/bin/mesos-gpu", show_default=True, help="Its mesos-gpu.")
@click.option(
    "--executor-archive",
    metavar="PATH|URI#sha256=HEX",
    help="As `mesos-gpu scheduler` takes it; default: agents have the package.",
)
@click.option(
    "--options",
    default="",
    help="Further options of `mesos-gpu scheduler`, as one text: '--host 10.0.0.5 --auth token'.",
)
@click.option(
    "--ha", metavar="zk://…|file://…", help="As `mesos-gpu scheduler` takes it, of several schedulers."
)
@click.option("--ha-url", metavar="URL", help="URL by which the other schedulers reach this one.")
@_SETTINGS
@_INTO
@json_option
def scheduler(
    master: str,
    program: str,
    executor_archive: str | None,
    options: str,
    ha: str | None,
    ha_url: str | None,
    settings_only: bool,
    into: Path | None,
    as_json: bool,
) -> None:
    """Print what the scheduler's host needs: service, settings, user."""
    from mesos_gpu.install import scheduler as of_scheduler

    files = of_scheduler.files(master, program, executor_archive, options, ha, ha_url)
    _hand_out(files, of_scheduler.STEPS, settings_only, into, as_json)


@click.command()
@click.argument("into", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY")
@click.option("--role", default="*", show_default=True, help="Mesos role of the scheduler.")
@click.option(
    "--mesos-role-of",
    "role_of",
    multiple=True,
    metavar="QUEUE=ROLE",
    callback=parse.role_of,
    help="Role of a top queue's own, as the scheduler's option of that name; may be repeated.",
)
@_TOKENS
@json_option
def secrets(into: Path, role: str, role_of: dict[str, str], tokens: bool, as_json: bool) -> None:
    """Write names, secrets and lists with which Mesos asks everybody who they are.

    The directory gets one for each kind of host. Mesos then refuses what no list names. Each call chooses new secrets.
    """
    from mesos_gpu.install import secrets as of_mesos
    from mesos_gpu.install.files import written

    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    into.chmod(0o700)
    paths = [str(path) for path in written(of_mesos.files((role, *role_of.values()), tokens=tokens), into)]
    if as_json:
        output.document({"files": paths, "places": of_mesos.PLACES})
        return
    for name, place in of_mesos.PLACES.items():
        output.line(f"{into / name}/  {place}")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.startswith("MESOS_GPU_") and name.replace("_", "").isalnum()):
        raise click.BadParameter(f"{text!r} is not MESOS_GPU_…=VALUE", param_hint="--set")
    return name, value


def _hand_out(
    files: "Sequence[HostFile]", steps: Sequence[str], settings_only: bool, into: Path | None, as_json: bool
) -> None:
    from mesos_gpu.install.files import printed, written

    if settings_only:
        files = [each for each in files if each.is_settings]
    if into is not None:
        written(files, into)
    if as_json:
        rows = [{"path": each.path, "mode": f"{each.mode:04o}", "text": each.text} for each in files]
        output.document({"files": rows, "steps": list(steps)})
    elif into is not None:
        for each in files:
            output.line(f"{each.mode:04o} {into}{each.path}")
    else:
        text = "".join(each.text for each in files) if settings_only else printed(files, steps)
        for line in text.splitlines():
            output.line(line)
