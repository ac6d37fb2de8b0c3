"""Types of answers about all nodes and all GPUs: whole lists and pages, and their operations."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query, of_patterns
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Gpu, Node

_Total = Annotated[int, says(minimum=0, description="number of entries on all pages")]
MAX: Final = 1_000_000  # entries of a page


class NodeOrder(StrEnum):
    """Order in which nodes are listed."""

    HOSTNAME = "hostname"
    STATE = "state"
    GPUS = "gpus"
    USED = "used"
    SICK = "sick"
    TASKS = "tasks"


class GpuPage(TypedDict):
    """GPUs, each listed once, by host name and index."""

    gpus: list[Gpu]
    total: _Total | None


class NodePage(TypedDict):
    """A list of nodes, or a page of it."""

    nodes: list[Node]
    total: _Total | None


def _page(what: str) -> tuple[Any, ...]:
    """Return the query parameters of a page."""
    return (
        in_query(
            "skip",
            {"type": "integer", "minimum": 0, "maximum": MAX, "default": 0},
            "number of entries to skip at the beginning",
        ),
        in_query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX},
            f"maximum number of {what}; default: all",
        ),
    )


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/gpus"): Operation(
        "list_gpus",
        "List all GPUs, or a page of them",
        {200: GpuPage},
        query=(of_patterns("node", "the host name, or its first parts"), *_page("GPUs")),
    ),
    ("GET", "/v1/nodes"): Operation(
        "list_nodes",
        "List all nodes, or a page of them",
        {200: NodePage},
        query=(
            in_query("search", {"type": "string"}, "part of the host name, the agent id or the state"),
            in_query(
                "order",
                {"type": "string", "enum": [*NodeOrder], "default": NodeOrder.HOSTNAME},
                "used, sick: by the number of such GPUs",
            ),
            in_query("descending", {"type": "boolean", "default": False}, "in descending order"),
            *_page("nodes"),
        ),
    ),
}
