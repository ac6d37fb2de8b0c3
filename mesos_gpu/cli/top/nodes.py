"""View of nodes: totals of all GPUs of a host."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.top.cards import bar
from mesos_gpu.cli.top.view import Row, Seen, View
from mesos_gpu.wire.listing.filters import By, passes

if TYPE_CHECKING:
    from mesos_gpu.api.spec.gpus.use import GpuUse
    from mesos_gpu.api.spec.shapes import Gpu, Node
    from mesos_gpu.cli.client import Client

_MILLI: Final = 1000


def look(client: "Client", named: Sequence[str] = ()) -> Seen:
    """Return the rows of all nodes, or of the given ones, with the use of their GPUs."""
    nodes, cards = client.nodes(), defaultdict[str, list["Gpu"]](list)
    if named:
        asked = {By.NODE: named}
        nodes = [node for node in nodes if passes(asked, {By.NODE: (node["hostname"],)})]
    for gpu in client.gpus(named):
        cards[gpu["agent_id"]].append(gpu)
    rows = [_row(node, cards[node["agent_id"]]) for node in nodes]
    return Seen(sorted(rows, key=lambda row: str(row.cells[0])), _summary(nodes), nodes)


def _summary(nodes: "Sequence[Node]") -> str:
    gpus, used = sum(node["gpus_total"] for node in nodes), sum(node["gpus_used"] for node in nodes)
    lost = sum(node["state"] == "lost" for node in nodes)
    return f"nodes: {len(nodes)}, {lost} lost; {used} of {gpus} GPUs held"


def _row(node: "Node", cards: "Sequence[Gpu]") -> Row:
    """Return the row of a node, with totals over its GPUs."""
    uses = [gpu["use"] for gpu in cards]
    busy = total(uses, lambda use: use["busy_pct"])
    used_mib = total(uses, lambda use: use["memory_used_mib"])
    power_mw = total(uses, lambda use: use["power_mw"])
    busy_pct = None if busy is None else round(busy / len(cards), 1)
    power = None if power_mw is None else round(power_mw / _MILLI)
    hottest = max((use["temperature_c"] or 0 for use in uses if use), default=0) or None
    cells = (
        node["hostname"], "drained" if node["drain"] else node["state"], node["gpus_total"], node["gpus_used"],
        node["gpus_sick"], busy_pct, bar(busy_pct, 100), used_mib, sum(gpu["memory_mib"] for gpu in cards), power,
        hottest, node["tasks"], node["driver_version"],
    )  # fmt: skip
    amounts = {
        "compute": busy_pct, "memory": used_mib, "power": power, "temperature": hottest,
        "free": node["gpus_total"] - node["gpus_used"],
    }  # fmt: skip
    return Row(node["agent_id"], cells, None, amounts)


def total(uses: "Iterable[GpuUse | None]", value: "Callable[[GpuUse], float | None]") -> float | None:
    """Return the sum over all GPUs; None if the value of one is not known, or without GPUs."""
    values = [None if use is None else value(use) for use in uses]
    return None if not values or None in values else sum(number or 0 for number in values)


NODES: Final = View(
    "nodes",
    (
        "HOST", "STATE", "GPUS", "HELD", "SICK", "BUSY_%", "COMPUTE", "USED_MIB", "MEM_MIB", "POWER_W", "TEMP_C",
        "TASKS", "DRIVER",
    ),
    Fit(
        leave=("DRIVER", "COMPUTE", "TASKS", "TEMP_C", "MEM_MIB", "POWER_W", "USED_MIB", "SICK", "STATE"),
        hosts=("HOST",),
    ),
    ("node", "compute", "memory", "power", "temperature", "free"),
    look,
    "No node has reported.",
    ("COMPUTE",),
)  # fmt: skip
