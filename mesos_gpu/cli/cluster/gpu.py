"""`mesos-gpu gpu`: GPUs for operators: health, drains and resets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.cluster.operator import (
    deadline_option,
    ends_question,
    given_back,
    reason_option,
    sentence,
    told,
    user,
)
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options, refuse_of_one
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.records.changed import changes_of, lines
from mesos_gpu.cli.share import Part, busy, busy_pct, parts
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import GPU
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, GpuWithHistory


class _Gpu(Table):
    table: ClassVar = {
        "list": (
            "mesos_gpu.cli.cluster.gpu:list_gpus",
            "List the GPUs with their health and the jobs that hold them.",
        ),
        "health": (
            "mesos_gpu.cli.cluster.gpu",
            "Show the health history of a GPU, or the health of each GPU.",
        ),
        "drain": ("mesos_gpu.cli.cluster.gpu", "Keep new work off GPUs."),
        "undrain": ("mesos_gpu.cli.cluster.gpu", "End the drain of GPUs, so that new work may use them."),
        "reset": ("mesos_gpu.cli.cluster.gpu", "Request the reset of a GPU from its node."),
    }


@click.group(cls=_Gpu)
def gpu() -> None:
    """GPUs: their health and its history, drains, resets.

    GPU is a UUID, the start of one, or HOST:INDEX; the first part of a host's name is enough if it is unique. A drain
    outlives restarts of the scheduler and of nodes.
    """


class Row(NamedTuple):
    """A GPU, and the part of it that a row of the list shows."""

    gpu: "Gpu"
    part: Part


#: Filters of GPU lists.
GPU_FILTERS: Final[Mapping[By, "Callable[[Gpu], Iterable[str]]"]] = {
    By.STATE: lambda gpu: (gpu["health"],),
    By.NODE: lambda gpu: (gpu["hostname"], gpu["agent_id"]),
    By.NAME: lambda gpu: [
        name for holder in (gpu, *gpu["shares"]) if (name := holder["job_name"] or holder["job_id"])
    ],
}
_LIST: Final[Listing["Gpu", Row]] = Listing(
    columns=(
        Col("HOST", lambda row: row.gpu["hostname"]),
        Col("INDEX", lambda row: row.gpu["index"]),
        Col("MODEL", lambda row: row.gpu["model"]),
        Col("HEALTH", lambda row: row.gpu["health"]),
        aged("FOR", lambda row: row.gpu["since"]),
        Col("NODE SAYS", lambda row: row.gpu["node_health"]),
        Col("UUID", lambda row: row.gpu["uuid"]),
        Col("BUS_ID", lambda row: row.gpu["pci_bus_id"]),
        Col("JOB", lambda row: row.part.job_id),
        Col("USE", lambda row: busy(row.gpu), lambda row: busy_pct(row.gpu), telling=True, moves=True),
        Col("SHARE", lambda row: row.part.share),
        Col("REASON", lambda row: _reason(row.gpu)),
    ),
    id=lambda gpu: gpu["uuid"],
    rows=lambda gpu: (Row(gpu, part) for part in parts(gpu)),
    filters=GPU_FILTERS,
    fit=Fit(
        cut=("REASON", "MODEL"),
        leave=("BUS_ID", "NODE SAYS", "MODEL", "FOR", "REASON", "USE", "UUID", "SHARE"),
        ids=("UUID", "JOB"),
        hosts=("HOST",),
    ),
    states=[health.value for health in Health],
)
_HEALTH: Final[Listing["Gpu", "Gpu"]] = Listing(
    columns=(
        Col("HOST", lambda gpu: gpu["hostname"]),
        Col("INDEX", lambda gpu: gpu["index"]),
        Col("UUID", lambda gpu: gpu["uuid"]),
        Col("HEALTH", lambda gpu: gpu["health"]),
        Col("SINCE", lambda gpu: output.stamp(gpu["since"]), lambda gpu: gpu["since"]),
        Col("REASON", lambda gpu: _reason(gpu)),
    ),
    id=lambda gpu: gpu["uuid"],
    rows=lambda gpu: (gpu,),
    filters=GPU_FILTERS,
    fit=Fit(leave=("SINCE",), ids=("UUID",), hosts=("HOST",), wrap=True),
    states=[health.value for health in Health],
)


@click.command("list")
@list_options(_LIST)
@api_command
def list_gpus(app: App, asked: "Asked[Gpu, Row]") -> None:
    """List the GPUs with their health and the jobs that hold them."""
    client, empty = app.client(), "No such GPU." if asked.filtered else "No node has reported a GPU."
    show(asked, lambda: Seen(client.gpus(), empty))


@click.command()
@click.argument("gpu", metavar="[GPU]", required=False, type=GPU)
@list_options(_HEALTH)
@api_command
def health(app: App, gpu: str | None, asked: "Asked[Gpu, Gpu]") -> None:
    """Show the health history of a GPU, or the health of each GPU.

    The history has every change of health with time and reason, newest last: findings of the node, drains, jobs that
    were ended for it, resets. A line without a change of health is a note.
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    client = app.client()
    if gpu is not None:
        as_json = refuse_of_one(asked, "GPU")
        gpu_with_history = OperatorCalls(client).gpu(gpu)
        changes = changes_of(client, "gpus", gpu_with_history["uuid"])
        output.document({**gpu_with_history, "changes": changes}) if as_json else _tell(
            gpu_with_history, lines(changes)
        )
        return
    empty = "No such GPU." if asked.filtered else "No node has reported a GPU."
    show(asked, lambda: Seen(client.gpus(), empty))


def _reason(gpu: "Gpu") -> str:
    """Return the reason of the GPU's health, with warnings."""
    return "; ".join([*filter(None, [gpu["reason"]]), *(f"warning: {text}" for text in gpu["warnings"])])


def _capability(gpu: "Gpu") -> str:
    return f", compute capability {gpu['compute_capability']}" if gpu["compute_capability"] else ""


def _shares(gpu: "Gpu") -> list[Part]:
    return list(parts(gpu)) if gpu["sharing"] else []


def _tell(gpu: "GpuWithHistory", changed: Sequence[tuple[str, object]]) -> None:
    """Print a GPU with its health, drain, reset, shares and history."""
    node = gpu["node_health"] + (f": {gpu['node_reason']}" if gpu["node_reason"] else "")
    reset = gpu["reset"]
    reset_text = (
        f"{reset['request']}, requested {output.age(reset['since'])} ago: {reset['reason']}"
        if reset
        else None
    )
    output.pairs(
        [
            ("gpu", gpu["uuid"]),
            ("model", gpu["model"] + _capability(gpu)),
            ("host", gpu["hostname"]),
            ("index", gpu["index"]),
            ("minor", f"{gpu['minor']} (/dev/nvidia{gpu['minor']})"),
            ("bus id", gpu["pci_bus_id"]),
            ("health", gpu["health"]),
            ("since", output.stamp(gpu["since"])),
            ("node says", node),
            ("warnings", "; ".join(gpu["warnings"])),
            ("drain", sentence(gpu["drain"]) if gpu["drain"] else None),
            ("reset", reset_text),
            ("job", gpu["job_id"]),
            *(("share", " ".join(filter(None, part))) for part in _shares(gpu)),
            *changed,
        ]
    )
    click.echo()
    output.table(
        ("TIME", "FROM", "TO", "REASON"),
        [
            (output.stamp(change["at"]), change["old"], change["new"], change["reason"])
            for change in gpu["history"]
        ],
        empty="No changes of its health are recorded.",
        fit=Fit(leave=(), wrap=True),
    )


@click.command()
@click.argument("gpus", metavar="GPU...", nargs=-1, required=True, type=GPU)
@reason_option
@deadline_option
@yes_option
@json_option
@api_command
def drain(
    app: App, gpus: tuple[str, ...], reason: str, deadline: float | None, yes: bool, as_json: bool
) -> None:
    """Keep new work off GPUs.

    Jobs that hold one continue; with --deadline, jobs that still run then are ended and restarted elsewhere, which uses
    up no attempt. Draining a GPU again sets a new reason and deadline.

    \b
      mesos-gpu gpu drain node7:3 --reason "fan" --deadline 2h
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    if deadline is not None:
        output.ask(ends_question(gpus, deadline), yes=yes)
    calls, drained = OperatorCalls(app.client()), []
    for name in gpus:
        for drained_gpu in told(name, calls.drain_gpu(name, reason, by=user(), deadline_s=deadline)):
            drained.append(drained_gpu)
            held = f", held by {drained_gpu['job_id']}" if drained_gpu["job_id"] else ""
            if not as_json:
                output.line(f"{drained_gpu['uuid']} {sentence(drained_gpu['drain'])}{held}")
    if as_json:
        output.document(drained)


@click.command()
@click.argument("gpus", metavar="GPU...", nargs=-1, required=True, type=GPU)
@json_option
@api_command
def undrain(app: App, gpus: tuple[str, ...], as_json: bool) -> None:
    """End the drain of GPUs, so that new work may use them."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls, returned = OperatorCalls(app.client()), []
    for name in gpus:
        for returned_gpu in told(name, calls.undrain_gpu(name, by=user())):
            returned.append(returned_gpu)
            if not as_json:
                output.line(
                    f"{returned_gpu['uuid']} {given_back(returned_gpu['drain'])}; its health is "
                    f"{returned_gpu['health']}"
                )
    if as_json:
        output.document(returned)


@click.command()
@click.argument("gpu", metavar="GPU", type=GPU)
@reason_option
@json_option
@api_command
def reset(app: App, gpu: str, reason: str, as_json: bool) -> None:
    """Request the reset of a GPU from its node.

    Only a GPU that no job holds is reset, and nothing is placed on it meanwhile. The command does not wait for the
    reset: `mesos-gpu gpu health` shows its result.
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    answer = OperatorCalls(app.client()).reset_gpu(gpu, reason, by=user())
    if as_json:
        output.document(answer)
        return
    request = answer["reset"]
    output.line(
        f"{answer['uuid']}: reset{' ' + request['request'] if request else ''} requested from {answer['hostname']}"
    )
