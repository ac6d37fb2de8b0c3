"""`mesos-gpu gpu`: cards as operators see and treat them."""

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
        "list": ("mesos_gpu.cli.cluster.gpu:list_gpus", "List the GPUs, how they stand, and who holds them."),
        "health": ("mesos_gpu.cli.cluster.gpu", "Tell the story of a GPU, or how each one stands."),
        "drain": ("mesos_gpu.cli.cluster.gpu", "Keep new work off GPUs."),
        "undrain": ("mesos_gpu.cli.cluster.gpu", "Give drained GPUs back."),
        "reset": ("mesos_gpu.cli.cluster.gpu", "Ask its node to reset a GPU."),
    }


@click.group(cls=_Gpu)
def gpu() -> None:
    """GPUs: their health and its history, drains, resets.

    GPU is a UUID, the start of one, or HOST:INDEX, with the first part of a host's name where that is unique. A
    drain holds over restarts of the scheduler and of nodes.
    """


class Row(NamedTuple):
    """A GPU, and the part of it that a row is about."""

    gpu: "Gpu"
    part: Part


#: What GPUs can be listed by.
GPU_FILTERS: Final[Mapping[By, "Callable[[Gpu], Iterable[str]]"]] = {
    By.STATE: lambda gpu: (gpu["health"],),
    By.NODE: lambda gpu: (gpu["hostname"], gpu["agent_id"]),
    By.NAME: lambda gpu: [
        name for each in (gpu, *gpu["shares"]) if (name := each["job_name"] or each["job_id"])
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
    """List the GPUs, how they stand, and who holds them."""
    client, empty = app.client(), "No such GPU." if asked.filtered else "No node has reported a GPU."
    show(asked, lambda: Seen(client.gpus(), empty))


@click.command()
@click.argument("gpu", metavar="[GPU]", required=False, type=GPU)
@list_options(_HEALTH)
@api_command
def health(app: App, gpu: str | None, asked: "Asked[Gpu, Gpu]") -> None:
    """Tell the story of a GPU, or how each one stands.

    The story is every change of its health with time and reason, newest last: what its node found, drains,
    jobs that were ended for it, resets. A line whose health stays is a note.
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    client = app.client()
    if gpu is not None:
        as_json = refuse_of_one(asked, "GPU")
        one = OperatorCalls(client).gpu(gpu)
        changes = changes_of(client, "gpus", one["uuid"])
        output.document({**one, "changes": changes}) if as_json else _tell(one, lines(changes))
        return
    empty = "No such GPU." if asked.filtered else "No node has reported a GPU."
    show(asked, lambda: Seen(client.gpus(), empty))


def _reason(gpu: "Gpu") -> str:
    """Why it stands as it does, and what is worth a look."""
    return "; ".join([*filter(None, [gpu["reason"]]), *(f"warning: {text}" for text in gpu["warnings"])])


def _capability(gpu: "Gpu") -> str:
    return f", compute capability {gpu['compute_capability']}" if gpu["compute_capability"] else ""


def _shares(gpu: "Gpu") -> list[Part]:
    return list(parts(gpu)) if gpu["sharing"] else []


def _tell(gpu: "GpuWithHistory", changed: Sequence[tuple[str, object]]) -> None:
    node = gpu["node_health"] + (f": {gpu['node_reason']}" if gpu["node_reason"] else "")
    reset = gpu["reset"]
    asked = (
        f"{reset['request']}, asked for {output.age(reset['since'])} ago: {reset['reason']}"
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
            ("reset", asked),
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
        empty="Nothing has happened to it yet.",
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

    A job that holds one runs on; with --deadline, one that still runs then is ended and starts elsewhere, and
    no attempt of it is used up. Drained again, a GPU gets the new reason and deadline.

    \b
      mesos-gpu gpu drain node7:3 --reason "fan" --deadline 2h
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    if deadline is not None:
        output.ask(ends_question(gpus, deadline), yes=yes)
    calls, drained = OperatorCalls(app.client()), []
    for name in gpus:
        for each in told(name, calls.drain_gpu(name, reason, by=user(), deadline_s=deadline)):
            drained.append(each)
            held = f", held by {each['job_id']}" if each["job_id"] else ""
            if not as_json:
                output.line(f"{each['uuid']} {sentence(each['drain'])}{held}")
    if as_json:
        output.document(drained)


@click.command()
@click.argument("gpus", metavar="GPU...", nargs=-1, required=True, type=GPU)
@json_option
@api_command
def undrain(app: App, gpus: tuple[str, ...], as_json: bool) -> None:
    """Give drained GPUs back."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls, returned = OperatorCalls(app.client()), []
    for name in gpus:
        for each in told(name, calls.undrain_gpu(name, by=user())):
            returned.append(each)
            if not as_json:
                output.line(f"{each['uuid']} {given_back(each['drain'])}; its health is {each['health']}")
    if as_json:
        output.document(returned)


@click.command()
@click.argument("gpu", metavar="GPU", type=GPU)
@reason_option
@json_option
@api_command
def reset(app: App, gpu: str, reason: str, as_json: bool) -> None:
    """Ask its node to reset a GPU.

    Only a GPU that no job holds is reset, and nothing is placed on it meanwhile. This does not wait for the
    end: `mesos-gpu gpu health` tells it.
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    answer = OperatorCalls(app.client()).reset_gpu(gpu, reason, by=user())
    if as_json:
        output.document(answer)
        return
    asked = answer["reset"]
    output.line(
        f"{answer['uuid']}: reset{' ' + asked['request'] if asked else ''} asked of {answer['hostname']}"
    )
