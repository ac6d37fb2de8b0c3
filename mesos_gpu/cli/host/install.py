"""`mesos-gpu install`: what hosts of a real cluster need. It asks no scheduler, and changes nothing of this host."""

import hashlib
from pathlib import Path
from typing import ClassVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.table import Table


class _Install(Table):
    table: ClassVar = {
        "executor": (
            "mesos_gpu.cli.host.install",
            "Write mesos-gpu-executor.pyz: all that agents run, in one file.",
        ),
    }


@click.group(cls=_Install)
def install() -> None:
    """Make or print what a real cluster's hosts need; nothing is changed."""


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
