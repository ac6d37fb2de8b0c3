"""`mesos-gpu service export`: a file for a load balancer, and a command that makes it read it."""

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.apps.service import NAME, left_out
from mesos_gpu.cli.types import DURATION
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from collections.abc import Callable

_EXEC_S: Final = 60.0  # a command that takes longer has failed


@click.command()
@click.argument("name", type=NAME, required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["haproxy", "traefik", "json"]),
    required=True,
    help="For whom: HAProxy's configuration, Traefik's dynamic configuration, or plain JSON.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file; default: stdout.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Also what apps' labels HAPROXY_GROUP say; * for all. May be repeated.",
)
@click.option(
    "--http-port",
    default=80,
    show_default=True,
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port at which HAProxy routes requests by virtual host.",
)
@click.option("--follow", is_flag=True, help="Stay, and write again whenever something has changed.")
@click.option(
    "--interval",
    type=DURATION,
    default="1s",
    show_default=True,
    help="Interval of --follow; shortest time between two commands.",
)
@click.option("--exec", "command", help="A shell command that is run after each change of the file.")
@api_command
def export(
    app: App,
    name: str | None,
    form: str,
    out: Path | None,
    groups: tuple[str, ...],
    http_port: int,
    follow: bool,
    interval: float,
    command: str | None,
) -> None:
    """Write what a load balancer needs, and keep it up to date.

    All services, or the one of that NAME; for HAProxy the latter is its backend alone. The file is replaced as a whole
    and only when it changes. With --follow, while the scheduler is away the file stays as it was, and a command that
    failed is run again.
    """
    from mesos_gpu.cli.apps.splits import Services

    services = Services(app.client())
    told: list[str] = []

    def read() -> bytes:
        notes = left_out([services.one(name)] if name else services.all(groups), form)
        for note in notes if notes != told else ():
            output.note(note)
        told[:] = notes
        return services.text(form, name, groups, http_port)

    if out is None:
        if follow or command:
            raise click.UsageError("--follow and --exec need --out")
        output.verbatim(read().rstrip(b"\n"))
    elif follow:
        _follow(read, out, command, lambda: time.sleep(interval))
    elif _write(out, read()) and command:
        _run(command)


def _follow(read: "Callable[[], bytes]", out: Path, command: str | None, pause: "Callable[[], None]") -> None:
    said, owed = "", True  # whether the command must run: an earlier process may have ended before it did
    while True:
        trouble = ""
        try:
            owed |= _write(out, read())
            if owed and command:
                _run(command)
            owed = False
        except MesosGpuError as error:
            if error.http_status < 500 and not out.exists():
                raise  # wrong from the beginning
            trouble = error.what
        if trouble != said:
            output.note(f"{trouble}; {out} stays as it is" if trouble else "all is well again")
        said = trouble
        pause()


def _write(path: Path, body: bytes) -> bool:
    """Replace a file at once; whether it was another one before."""
    if path.exists() and path.read_bytes() == body:
        return False
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(body)
    beside.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(beside, path)
    return True


def _run(command: str) -> None:
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, timeout=_EXEC_S, check=False
        )
        code = str(done.returncode)
    except subprocess.TimeoutExpired:
        code = f"none within {_EXEC_S:g} s"
    if code != "0":
        raise MesosGpuError(
            f"exit code of {command!r}: {code}", remedy="run it by hand, and correct what it reports"
        )
