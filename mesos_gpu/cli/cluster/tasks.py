"""`mesos-gpu tasks unknown`: running tasks that are not in the scheduler's state, as after a restored backup."""

from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.table import Table
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import UnknownTask


class _Tasks(Table):
    table: ClassVar = {
        "unknown": (
            "mesos_gpu.cli.cluster.tasks",
            "List, adopt or end running tasks that the scheduler does not know.",
        ),
    }


class _Unknown(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.cluster.tasks:list_unknown", "List unknown tasks."),
        "adopt": ("mesos_gpu.cli.cluster.tasks", "Adopt unknown tasks for their jobs."),
        "kill": ("mesos_gpu.cli.cluster.tasks", "End unknown tasks."),
    }


@click.group(cls=_Tasks)
def tasks() -> None:
    """Tasks that run but are unknown to the scheduler."""


@click.group(cls=_Unknown)
def unknown() -> None:
    """List, adopt or end running tasks that the scheduler does not know.

    They appear after a start with an older state file. They keep running and keep their GPUs until they end or an
    operator adopts or ends them. Tasks that a job waits for are given to it automatically.
    """


_ids = click.argument("ids", metavar="[TASK...]", nargs=-1)
_all = click.option("--all", "all_of_them", is_flag=True, help="All unknown tasks.")


_UNKNOWN: Final[Listing["UnknownTask", "UnknownTask"]] = Listing(
    columns=(
        Col("TASK", lambda task: task["id"]),
        Col("STATE", lambda task: "killing" if task["kill_requested"] else task["state"]),
        Col("GPUS", lambda task: len(task["gpu_ids"])),
        Col("HOST", lambda task: task["hostname"]),
        Col("JOB", lambda task: task["job_id"]),
        Col("APP", lambda task: task["app"], wide=True),
        Col("USER", lambda task: task["user"]),
        aged("HELD", lambda task: task["since"]),
        Col("ADOPT", lambda task: "yes" if task["adoptable"] else "no"),
    ),
    id=lambda task: task["id"],
    rows=lambda task: (task,),
    filters={
        By.USER: lambda task: (task["user"] or "",),
        By.APP: lambda task: (task["app"] or "",),
        By.NODE: lambda task: (task["hostname"], task["agent_id"]),
    },
)


@click.command("list")
@list_options(_UNKNOWN)
@api_command
def list_unknown(app: App, asked: "Asked[UnknownTask, UnknownTask]") -> None:
    """List unknown tasks."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls = OperatorCalls(app.client())
    empty = "No such task." if asked.filtered else "No unknown tasks: the scheduler knows all running tasks."
    show(asked, lambda: Seen(calls.unknown_tasks(), empty))


@click.command()
@_ids
@_all
@json_option
@api_command
def adopt(app: App, ids: tuple[str, ...], all_of_them: bool, as_json: bool) -> None:
    """Adopt unknown tasks for their jobs.

    A job that the scheduler does not know is restored from the task's labels. It runs to its end, and is shown, killed
    and waited for like others. Its command is not known, so it is never restarted.
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls = OperatorCalls(app.client())
    left = calls.unknown_tasks()
    for task_id in _named(ids, all_of_them, left):
        if all_of_them and task_id not in {task["id"] for task in left}:
            continue  # adopted together with another task of its job
        left = calls.adopt(task_id)
        if not as_json:
            output.line(f"{task_id} adopted")
    if as_json:
        output.document(left)


@click.command()
@_ids
@_all
@yes_option
@json_option
@api_command
def kill(app: App, ids: tuple[str, ...], all_of_them: bool, yes: bool, as_json: bool) -> None:
    """End unknown tasks."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls = OperatorCalls(app.client())
    held = calls.unknown_tasks()
    named = _named(ids, all_of_them, held)
    if named:
        output.ask(f"End {', '.join(named)}?", yes=yes)
    for task_id in named:
        held = calls.kill_unknown(task_id)
        if not as_json:
            output.line(f"{task_id} is being ended")
    if as_json:
        output.document(held)


def _named(ids: tuple[str, ...], all_of_them: bool, held: "list[UnknownTask]") -> list[str]:
    if bool(ids) == all_of_them:
        raise click.UsageError("give task IDs or --all; list them with: mesos-gpu tasks unknown list")
    return list(ids) or [task["id"] for task in held]
