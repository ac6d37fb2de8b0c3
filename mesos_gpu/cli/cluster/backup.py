"""`mesos-gpu backup` and `restore`: copies of the scheduler's state and webhooks."""

from pathlib import Path
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option, yes_option
from mesos_gpu.cli.local.up import directory
from mesos_gpu.cli.records.on_host import recorded

_OF_SEVERAL: Final = (
    "it was the state of several schedulers (--ha), whose log in ZooKeeper has later changes: stop all of them, "
    "give each another path in --ha, start this one first, and replace the state of each of the others by "
    "the file that mesos-gpu backup then writes here"
)


state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="MESOS_GPU_STATE",
    help="The scheduler's --state file; default: that of `mesos-gpu up`.",
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_option
@json_option
def backup(file: Path, state: Path | None, as_json: bool) -> None:
    """Back up the scheduler's state to a file, even while it runs.

    FILE must not exist. Only its owner can read it: it contains what users submitted, including secrets in
    environments. FILE.hooks beside it contains the webhooks, their secrets and pending deliveries. `mesos-gpu restore
    FILE` restores both.
    """
    from mesos_gpu.adapters.sqlite.copies import backup as write

    state = state or directory() / "scheduler" / "state.sqlite"
    with recorded("backup", f"state:{state}", f"file:{file}"):
        written, *hooks = write(state, file)
    size = written.stat().st_size
    if as_json:
        beside = str(hooks[0]) if hooks else None
        output.document({"file": str(file), "bytes": size, "state": str(state), "hooks": beside})
        return
    output.line(f"{file}: {size} bytes, of {state}")
    for hook_file in hooks:
        output.line(f"{hook_file}: {hook_file.stat().st_size} bytes, its webhooks")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_option
@yes_option
@json_option
def restore(file: Path, state: Path | None, yes: bool, as_json: bool) -> None:
    """Restore the scheduler's state from a backup, while the scheduler is stopped.

    FILE was written by `mesos-gpu backup`, with FILE.hooks beside it. It is read completely before anything changes.
    The replaced state is kept as STATE.replaced-TIME.

    The next scheduler asks the master for running tasks before it launches any; tasks that the backup does not know
    keep running: mesos-gpu tasks unknown list.
    """
    from mesos_gpu.adapters.sqlite_store import restore as place

    state = state or directory() / "scheduler" / "state.sqlite"
    if state.exists():
        output.ask(f"Replace {state} by {file}?", yes=yes)
    with recorded("restore", f"state:{state}", f"file:{file}"):
        placed, followed = place(file, state)
    if as_json:
        kept = str(placed.kept) if placed.kept else None
        output.document(
            {
                "file": str(file),
                "state": str(state),
                "kept": kept,
                "hooks": placed.has_hooks,
                "followed_log": followed,
            }
        )
        return
    output.line(f"{state} was restored from {file}; start the scheduler")
    if placed.kept:
        output.line(f"the replaced state is kept as {placed.kept}")
    if not placed.has_hooks:
        output.note("the backup contains no webhooks, so none are configured now")
    if followed:
        output.note(_OF_SEVERAL)
