"""`mesos-gpu install`: files for hosts of a real cluster. Contacts no scheduler and does not change this host."""

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
    "--master",
    required=True,
    metavar="HOST:PORT|zk://…",
    envvar="MESOS_GPU_MASTER",
    help="Address of the Mesos master.",
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
    help="Only the settings file: the Debian packages contain the other files.",
)
_TOKENS: Final = click.option(
    "--executor-tokens",
    "tokens",
    is_flag=True,
    help="Let agents give each executor its own token; needs a Mesos built with OpenSSL.",
)


class _Install(Table):
    table: ClassVar = {
        "executor": (
            "mesos_gpu.cli.host.install",
            "Write mesos-gpu-executor.pyz, the single file with all programs that agents run.",
        ),
        "agent": (
            "mesos_gpu.cli.host.install",
            "Print the files of a GPU host: service, flags, directories.",
        ),
        "master": (
            "mesos_gpu.cli.host.install",
            "Print the files of a Mesos master's host: service, flags, directories.",
        ),
        "scheduler": (
            "mesos_gpu.cli.host.install",
            "Print the files of the scheduler's host: service, settings, user.",
        ),
        "secrets": (
            "mesos_gpu.cli.host.install",
            "Write names, secrets and access lists for Mesos' authentication.",
        ),
    }


@click.group(cls=_Install)
def install() -> None:
    """Write or print the files that hosts of a real cluster need; nothing is installed."""


@click.command()
@click.argument("into", default=".", type=click.Path(path_type=Path), metavar="[FILE|DIRECTORY]")
@json_option
def executor(into: Path, as_json: bool) -> None:
    """Write mesos-gpu-executor.pyz, the single file with all programs that agents run.

    It needs only Python 3.11 or later. Put it at the place given by the scheduler's --executor-archive: on each agent,
    or at a URI from which agents can fetch it.
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
    help="Require name and secret from all clients of the agent. Without, everyone who reaches its port is root there.",
)
@_TOKENS
@click.option(
    "--binary",
    default="/usr/sbin/mesos-agent",
    show_default=True,
    help="The host's mesos-agent, or '/opt/mesos-gpu/bin/mesos-gpu mesos agent'.",
)
@click.option(
    "--ip", default="", help="Address at which masters reach the host; default: the address of its name."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Variable for executors, such as MESOS_GPU_VOLUME_ROOTS=/data:ro; may be repeated.",
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
    """Print the files of a GPU host: service, flags, directories.

    The service runs the host's own mesos-agent, so that tasks survive its restart. With cgroups v2, Mesos 1.11 limits
    neither memory nor CPUs of tasks, and executors run images themselves.
    """
    from mesos_gpu.install import agent as of_agent

    host = of_agent.AgentHost(
        master,
        gpus,
        cgroups or ("v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"),
        authentication,
        tokens,
        binary,
        environment=dict(_setting(setting) for setting in settings),
        ip=ip,
    )
    _hand_out(of_agent.files(host), of_agent.STEPS, settings_only, into, as_json)


@click.command()
@click.option("--ip", required=True, help="Address at which other hosts reach the master.")
@click.option(
    "--zk",
    default="",
    metavar="zk://…",
    help="ZooKeeper servers and path where several masters elect a leader.",
)
@click.option(
    "--quorum",
    type=click.IntRange(1),
    default=1,
    help="Number of masters that form a majority, such as 2 of 3.",
)
@click.option(
    "--authentication/--no-authentication",
    default=True,
    show_default=True,
    help="Require name and secret from all clients of the master.",
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
    """Print the files of a Mesos master's host: service, flags, directories."""
    from mesos_gpu.install import master as of_master

    host = of_master.MasterHost(ip, zk, quorum, authentication, binary)
    _hand_out(of_master.files(host), of_master.STEPS, settings_only, into, as_json)


@click.command()
@_MASTER
@click.option(
    "--program",
    default="/opt/mesos-gpu/bin/mesos-gpu",
    show_default=True,
    help="Path of mesos-gpu on the host.",
)
@click.option(
    "--executor-archive",
    metavar="PATH|URI#sha256=HEX",
    help="Value for `mesos-gpu scheduler`; default: agents have the package installed.",
)
@click.option(
    "--options",
    default="",
    help="Further options of `mesos-gpu scheduler` in one argument: '--host 10.0.0.5 --auth token'.",
)
@click.option(
    "--ha", metavar="zk://…|file://…", help="Value for `mesos-gpu scheduler`, for several schedulers."
)
@click.option("--ha-url", metavar="URL", help="URL at which the other schedulers reach this one.")
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
    """Print the files of the scheduler's host: service, settings, user."""
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
    help="Role of a top-level queue, equal to the scheduler's option of that name; may be repeated.",
)
@_TOKENS
@json_option
def secrets(into: Path, role: str, role_of: dict[str, str], tokens: bool, as_json: bool) -> None:
    """Write names, secrets and access lists for Mesos' authentication.

    The directory gets a subdirectory for each kind of host. Mesos then refuses all that no list permits. Each call
    generates new secrets.
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
        raise click.BadParameter(
            f"{text!r} is not MESOS_GPU_…=VALUE, for example MESOS_GPU_VOLUME_ROOTS=/data:ro",
            param_hint="--set",
        )
    return name, value


def _hand_out(
    files: "Sequence[HostFile]", steps: Sequence[str], settings_only: bool, into: Path | None, as_json: bool
) -> None:
    """Print the files or write them below `into`; with `settings_only` only settings files."""
    from mesos_gpu.install.files import printed, written

    if settings_only:
        files = [file for file in files if file.is_settings]
    if into is not None:
        written(files, into)
    if as_json:
        rows = [{"path": file.path, "mode": f"{file.mode:04o}", "text": file.text} for file in files]
        output.document({"files": rows, "steps": list(steps)})
    elif into is not None:
        for file in files:
            output.line(f"{file.mode:04o} {into}{file.path}")
    else:
        text = "".join(file.text for file in files) if settings_only else printed(files, steps)
        for line in text.splitlines():
            output.line(line)
