"""`mesos-gpu top`: who is on each GPU, and how much of it they use, again and again."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.share import words
from mesos_gpu.cli.types import DURATION
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mesos_gpu.api.spec.shapes import Gpu, GpuShare
    from mesos_gpu.cli.client import Client

_HEADERS: Final = (
    "HOST", "MINOR", "STATE", "JOB", "USED_MIB", "SHARE_MIB", "MEMORY", "USED_%", "SHARE_%", "COMPUTE", "REFUSED",
    "GUARANTEE", "NOTE",
)  # fmt: skip
_BARS: Final = ("MEMORY", "COMPUTE")
_FIT: Final = Fit(
    cut=("NOTE",),
    leave=("GUARANTEE", "COMPUTE", "MEMORY", "NOTE", "REFUSED", "SHARE_%", "USED_%", "STATE", "MINOR"),
    ids=("JOB",),
    hosts=("HOST",),
    names=("JOB",),
)
_BAR: Final = 10  # characters
_KEYS: Final = {"c": "card", "m": "memory", "p": "compute"}
_HELP: Final = "q quit   sort by: c card, m memory used, p compute used"
_LEAST_S: Final = 1.0  # between two requests
_ABOVE_ROWS, _BELOW_ROWS = 3, 1  # lines of the screen: what is said, an empty one and headers; keys


class Use(NamedTuple):
    """A row: what one job has of a GPU, or what is free of it. None: nothing is to be said, or nobody can say.

    Memory is in MiB, compute in percent of the card.
    """

    host: str
    minor: int
    state: str
    job: str | None
    memory: int | None = None
    memory_of: int | None = None
    compute: float | None = None
    compute_of: float | None = None
    refused: int | None = None
    guarantee: str | None = None
    note: str = ""


@click.command()
@click.option(
    "--sort",
    type=click.Choice(list(_KEYS.values())),
    default="card",
    show_default=True,
    help="memory, compute: what uses most of it comes first.",
)
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between two looks.")
@click.option("-1", "--once", is_flag=True, help="Look once, and end; so it is where stdout is no terminal.")
@json_option
@api_command
def top(app: App, sort: str, interval: float, once: bool, as_json: bool) -> None:
    """Watch who is on each GPU, and what they use of their shares.

    Memory and compute of a share stand beside what is granted; REFUSED counts allocations that did not fit it, `over`
    is said of one that uses more memory than it may. Of a GPU that nobody shares it is all that is in use there, and
    the part of the last minute in which it was at work; what the driver does not tell is empty. Hosts report every few
    seconds. Keys: q or Ctrl-C ends it, c, m and p sort by card, memory and compute.
    """
    if interval < _LEAST_S:
        raise click.BadParameter("must be at least 1s", param_hint="--interval")
    client = app.client()
    gpus = client.gpus()
    if as_json:
        output.document(gpus)
    elif once or not output.is_terminal(sys.stdout):
        _print(gpus, sort)
    else:
        _watch(client, gpus, sort, interval)


def _print(gpus: "Sequence[Gpu]", sort: str) -> None:
    drawn = output.is_terminal(sys.stdout)
    kept = [i for i, header in enumerate(_HEADERS) if drawn or header not in _BARS]
    rows = [_cells(use) for use in uses(gpus, sort)]
    output.table(
        [_HEADERS[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        empty="No node has reported a GPU.",
        fit=_FIT,
    )


def _watch(client: "Client", gpus: "Sequence[Gpu]", sort: str, interval_s: float) -> None:
    """Draw until somebody ends it. While the scheduler is away, what it said last stays, and that is told."""
    from mesos_gpu.cli.cluster.live import Screen

    trouble, key = "", ""
    with Screen() as screen:
        look_at = time.monotonic() + interval_s
        while key != "q":
            screen.show(_picture(gpus, sort, interval_s, trouble))
            key = screen.key(max(look_at - time.monotonic(), 0)).lower()
            sort = _KEYS.get(key, sort)
            if time.monotonic() >= look_at:
                gpus, trouble = _looked(client, gpus)
                look_at = time.monotonic() + interval_s


def _looked(client: "Client", before: "Sequence[Gpu]") -> tuple["Sequence[Gpu]", str]:
    """The GPUs as they are now, or as they were and why that is all; "": it is not."""
    try:
        return client.gpus(), ""
    except MesosGpuError as error:
        return before, f"what follows is old: {error.what}"


def _picture(gpus: "Sequence[Gpu]", sort: str, interval_s: float, trouble: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    rows = uses(gpus, sort)
    room = max(shutil.get_terminal_size().lines - _ABOVE_ROWS - _BELOW_ROWS, 1)
    shown = rows if len(rows) <= room else rows[: room - 1]
    picture, _ = output.drawn(_HEADERS, [_cells(use) for use in shown], fit=_FIT)
    more = [] if len(shown) == len(rows) else [Text(f"… and {len(rows) - len(shown)} rows more")]
    said = trouble or f"{_summary(gpus)}; every {output.span(interval_s)}, by {sort}"
    return Group(
        Text(output.clean(said), style="bold red" if trouble else "bold", no_wrap=True, overflow="ellipsis"),
        Text(""),
        picture,
        *more,
        Text(_HELP, style="dim", no_wrap=True, overflow="ellipsis"),
    )


def _summary(gpus: "Sequence[Gpu]") -> str:
    """How the GPUs stand, in one line."""
    shared = sum(gpu["sharing"] is not None for gpu in gpus)
    whole = sum(gpu["sharing"] is None and gpu["job_id"] is not None for gpu in gpus)
    hosts = len({gpu["agent_id"] for gpu in gpus})
    return f"GPUs: {len(gpus)} on {hosts} {'host' if hosts == 1 else 'hosts'}, {shared} shared, {whole} held whole"


def uses(gpus: "Sequence[Gpu]", sort: str) -> list[Use]:
    """The rows in an order: by host and card, or by what they use of memory or compute, the most first."""
    rows = [row for gpu in gpus for row in _of_card(gpu)]
    if sort == "card":
        return sorted(rows, key=lambda row: (row.host, row.minor))  # stable: shares before what is free
    return sorted(rows, key=lambda row: -1 if (used := getattr(row, sort)) is None else used, reverse=True)


def _of_card(gpu: "Gpu") -> list[Use]:
    at, sharing = (gpu["hostname"], gpu["minor"]), gpu["sharing"]
    if sharing is None:
        held, now = gpu["job_id"] or gpu["task_id"], gpu["use"]
        used = (now["memory_used_mib"], now["busy_pct"]) if now else (None, None)
        return [Use(*at, gpu["health"], held, used[0], gpu["memory_mib"], used[1], 100, note=gpu["reason"])]
    uncovered = sharing["state"] == "uncovered"
    rows = [_of_share(gpu, share) for share in gpu["shares"]]
    left = (
        None if uncovered else sharing["free_memory_mib"],
        None if uncovered else sharing["free_compute_pct"],
    )
    state, name = ("uncovered", "(uncovered)") if uncovered else (gpu["health"], "(free)")
    return [*rows, Use(*at, state, name, None, left[0], None, left[1], note=gpu["reason"])]


def _of_share(gpu: "Gpu", share: "GpuShare") -> Use:
    used = share["used"]
    memory = used["memory_mib"] if used else None
    over = memory is not None and memory > share["memory_max_mib"]
    return Use(
        gpu["hostname"],
        gpu["minor"],
        "over" if over else gpu["health"],
        share["job_id"] or share["task_id"],
        memory,
        share["memory_mib"],
        used["compute_pct"] if used else None,
        share["compute_pct"],
        used["refused"] if used else None,
        words(share["guarantee"]),
        (used["problem"] or "") if used else "",
    )


def _cells(use: Use) -> tuple[object, ...]:
    memory, compute = bar(use.memory, use.memory_of), bar(use.compute, use.compute_of)
    return (*use[:6], memory, use.compute, use.compute_of, compute, *use[8:])


def bar(used: float | None, of: float | None) -> str | None:
    """How much of it is used, as a bar; full if more is. None: that is not known."""
    if used is None or not of:
        return None
    full = min(round(_BAR * used / of), _BAR)
    return "█" * full + "░" * (_BAR - full)
