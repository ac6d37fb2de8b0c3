"""What /v1 answers about all nodes and all cards, as types: whole lists, and pages of them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query, of_patterns
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Gpu, Node

_Total = Annotated[int, says(minimum=0, description="how many there are with those of other pages")]
MAX: Final = 1_000_000  # of a page


class NodeOrder(StrEnum):
    """How nodes are listed."""

    HOSTNAME = "hostname"
    STATE = "state"
    GPUS = "gpus"
    USED = "used"
    SICK = "sick"
    TASKS = "tasks"


class GpuPage(TypedDict):
    """GPUs, each once, by host name and index."""

    gpus: list[Gpu]
    total: _Total | None


class NodePage(TypedDict):
    """Nodes."""

    nodes: list[Node]
    total: _Total | None


def _page(what: str) -> tuple[Any, ...]:
    return (
        in_query(
            "skip",
            {"type": "integer", "minimum": 0, "maximum": MAX, "default": 0},
            "leave out so many of the first",
        ),
        in_query("limit", {"type": "integer", "minimum": 1, "maximum": MAX}, f"so many {what}; default: all"),
    )


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/gpus"): Operation(
        "list_gpus",
        "All GPUs, or a page of them",
        {200: GpuPage},
        query=(of_patterns("node", "the node, or its first parts"), *_page("GPUs")),
    ),
    ("GET", "/v1/nodes"): Operation(
        "list_nodes",
        "All nodes, or a page of them",
        {200: NodePage},
        query=(
            in_query("search", {"type": "string"}, "a part of its host name, agent or state"),
            in_query(
                "order",
                {"type": "string", "enum": [*NodeOrder], "default": NodeOrder.HOSTNAME},
                "used, sick: by how many of its GPUs are",
            ),
            in_query("descending", {"type": "boolean", "default": False}, "the largest first"),
            *_page("nodes"),
        ),
    ),
}
