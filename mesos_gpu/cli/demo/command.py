"""`mesos-gpu demo`: real Mesos with simulated GPUs, and demos that check themselves."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.demo import cluster, whole
from mesos_gpu.cli.demo import tenants as tenants_story
from mesos_gpu.local.stack import Stack
from mesos_gpu.model.words import counted

_PREFIX: Final = "mesos-gpu-demo-"  # prefix of the demo's directory in the temporary directory


@click.command()
@click.option(
    "--tenants",
    is_flag=True,
    help="Run the demo of a shared pool of several teams: borrowing, reclaim, accounting.",
)
@click.option(
    "--cluster",
    "is_cluster",
    is_flag=True,
    help="Run the demo of several masters and schedulers, whose leaders are killed. Needs root and ZooKeeper.",
)
def demo(*, tenants: bool, is_cluster: bool) -> None:
    """Show the platform on this machine: start, run jobs of every kind, check, stop."""
    if tenants and is_cluster:
        raise click.UsageError("--tenants and --cluster exclude each other: choose one demo")
    story = tenants_story if tenants else whole
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as top:
        Path(top).chmod(0o755)
        if is_cluster:
            click.get_current_context().exit(cluster.play(Path(top) / "stack"))
        size = f"{counted(len(story.NODES), 'agent')} of {story.NODES[0].gpus} simulated GPUs each"
        output.note(f"starting Apache Mesos 1.11.0 with {size}")
        with Stack(Path(top) / "stack", story.NODES, scheduler_arguments=story.ARGUMENTS) as stack:
            output.line(f"dashboard {stack.url}   Mesos master {stack.cluster.master.url}")
            with Client(stack.url) as client:
                click.get_current_context().exit(story.STORY(stack, client).run())


def left_behind() -> list[Path]:
    """Return directories of this user's demos, running or killed.

    The temporary directory is shared: a directory that another user could have made must not be removed as one of ours.
    """
    directories = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    return [path / "stack" for path in directories if _is_ours(path.lstat())]


def _is_ours(status: os.stat_result) -> bool:
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not shared
