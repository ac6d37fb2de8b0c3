"""`mesos-gpu service export`: a configuration file for a load balancer, and a command to reload it."""

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

_EXEC_S: Final = 60.0  # timeout of the command


@click.command()
@click.argument("name", type=NAME, required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["haproxy", "traefik", "json"]),
    required=True,
    help="Format: HAProxy's configuration, Traefik's dynamic configuration, or plain JSON.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: stdout."
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Also services from apps' labels HAPROXY_GROUP with this value; * for all. May be repeated.",
)
@click.option(
    "--http-port",
    default=80,
    show_default=True,
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port at which HAProxy routes requests by virtual host.",
)
@click.option("--follow", is_flag=True, help="Keep running, and write the file again after each change.")
@click.option(
    "--interval",
    type=DURATION,
    default="1s",
    show_default=True,
    help="Interval of checks with --follow, and minimum time between two commands.",
)
@click.option("--exec", "command", help="Shell command to run after each change of the file.")
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
    """Write a load balancer's configuration, and keep it up to date.

    Exports all services, or only NAME; for HAProxy that is its backend alone. The file is replaced atomically, and only
    when it changes. With --follow, the file stays as it is while the scheduler is unreachable, and a command that
    failed is run again.
    """
    from mesos_gpu.cli.apps.splits import Services

    services = Services(app.client())
    last_notes: list[str] = []

    def read() -> bytes:
        notes = left_out([services.one(name)] if name else services.all(groups), form)
        for note in notes if notes != last_notes else ():
            output.note(note)
        last_notes[:] = notes
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
    """Write the file again and run the command after each change, and note errors on stderr; does not return."""
    last_trouble, is_owed = (
        "",
        True,
    )  # run at the start, as an earlier process may have ended before its command
    while True:
        trouble = ""
        try:
            is_owed |= _write(out, read())
            if is_owed and command:
                _run(command)
            is_owed = False
        except MesosGpuError as error:
            if error.http_status < 500 and not out.exists():
                raise  # the first attempt failed by the user's mistake
            trouble = error.what
        if trouble != last_trouble:
            output.note(f"{trouble}; {out} stays as it is" if trouble else "the service export works again")
        last_trouble = trouble
        pause()


def _write(path: Path, body: bytes) -> bool:
    """Replace a file atomically; return whether its content changed."""
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
        code = f"none, it ran longer than {_EXEC_S:g} s"
    if code != "0":
        raise MesosGpuError(
            f"exit code of {command!r}: {code}", remedy="run it by hand, and fix what it reports"
        )
