"""`mesos-gpu backup` and `restore`: the scheduler's state and webhooks as files, and those brought back."""

from pathlib import Path
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option, yes_option
from mesos_gpu.cli.local.up import directory
from mesos_gpu.cli.records.on_host import recorded

_OF_SEVERAL: Final = (
    "it was the state of several schedulers (--ha), whose log in ZooKeeper has what happened since: stop all of them, "
    "name another path in --ha for each, start this one first, and give each of the others, in place of its state, "
    "what mesos-gpu backup writes here then"
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
    """Copy the scheduler's state to a file, also while it runs.

    FILE is new, and only its owner can read it: it holds what users submitted, secrets in environments included.
    FILE.hooks beside it has the webhooks, their secrets, and what waits for them.
    `mesos-gpu restore FILE` brings both back.
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
    for each in hooks:
        output.line(f"{each}: {each.stat().st_size} bytes, its webhooks")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_option
@yes_option
@json_option
def restore(file: Path, state: Path | None, yes: bool, as_json: bool) -> None:
    """Put a backup in place of the scheduler's state, while no scheduler runs on it.

    FILE is what `mesos-gpu backup` wrote, with FILE.hooks beside it. It is read whole before anything changes. What
    was there is kept beside, as STATE.replaced-TIME.
    The next scheduler asks the master what runs before it launches anything; running tasks that the backup does not
    know are held: mesos-gpu tasks unknown list.
    """
    from mesos_gpu.adapters.sqlite_store import restore as place

    state = state or directory() / "scheduler" / "state.sqlite"
    if state.exists():
        output.ask(f"Put {file} in place of {state}?", yes=yes)
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
    output.line(f"{state} is what {file} has; start the scheduler")
    if placed.kept:
        output.line(f"{placed.kept} is what was there")
    if not placed.has_hooks:
        output.note("the backup has no webhooks: there are none now")
    if followed:
        output.note(_OF_SEVERAL)
