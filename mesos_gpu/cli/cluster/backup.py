"""`mesos-gpu backup`: the scheduler's state and webhooks as files that can be brought back."""

from pathlib import Path

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.records.on_host import recorded


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="MESOS_GPU_STATE",
    help="The scheduler's --state file; default: that of `mesos-gpu up`.",
)
@json_option
def backup(file: Path, state: Path | None, as_json: bool) -> None:
    """Copy the scheduler's state to a file, also while it runs.

    FILE is new, and only its owner can read it: it holds what users submitted, secrets in environments included.
    FILE.hooks beside it has the webhooks, their secrets, and what waits for them.
    To bring them back, stop the scheduler, put FILE in place of the state file and FILE.hooks in place of the one
    beside that which ends in .hooks, remove those which end in -wal and -shm, and start once with
    --accept-older-state.
    """
    from mesos_gpu.adapters.sqlite.copies import backup as write
    from mesos_gpu.cli.dev.up import directory

    state = state or directory() / "scheduler" / "state.sqlite"
    with recorded("backup", f"state:{state}", f"file:{file}"):
        written, *hooks = write(state, file)
    size = written.stat().st_size
    if as_json:
        beside = str(hooks[0]) if hooks else None
        output.document({"file": str(file), "bytes": size, "state": str(state), "hooks": beside})
        return
    output.line(f"{file}: {size} bytes, of {state}")
    for each in hooks:
        output.line(f"{each}: {each.stat().st_size} bytes, its webhooks")
