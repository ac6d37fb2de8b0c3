"""Long lists, which are asked for page by page: no request holds the scheduler for long."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesos_gpu.cli.reach.answers import Kind

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.lists import GpuPage, NodePage
    from mesos_gpu.api.spec.shapes import Gpu, Node

_T = TypeVar("_T")
_Get = Callable[[str, Any, dict[str, Any]], Any]  # the answer of a path as a type, to a query
_LISTS: Final = "mesos_gpu.api.spec.cluster.lists"
PAGE: Final = 2000  # cards, or nodes


def every_gpu(get: _Get, nodes: Sequence[str]) -> "list[Gpu]":
    """All cards, or those of some nodes: names and patterns."""
    query = {"node": list(nodes)} if nodes else {}

    def page(skip: int) -> "tuple[list[Gpu], int | None]":
        answer: GpuPage = get("/v1/gpus", Kind("GpuPage", _LISTS), {**query, "skip": skip, "limit": PAGE})
        return answer["gpus"], answer["total"]

    return whole(page, lambda gpu: gpu["uuid"])


def every_node(get: _Get) -> "list[Node]":
    """All agents."""

    def page(skip: int) -> "tuple[list[Node], int | None]":
        answer: NodePage = get("/v1/nodes", Kind("NodePage", _LISTS), {"skip": skip, "limit": PAGE})
        return answer["nodes"], answer["total"]

    return whole(page, lambda node: f"{node['hostname']} {node['agent_id']}")


def whole(page: Callable[[int], tuple[Sequence[_T], int | None]], key: Callable[[_T], str]) -> list[_T]:
    """All of a list. What comes or goes meanwhile may be in it or not; nothing is in it twice.

    Args:
        page: What comes after so many of the first, and how many there are in all. None: these are all, as an earlier
            scheduler answers, which knows no pages.
        key: By which one is told from the others.
    """
    known: dict[str, _T] = {}
    skip = 0
    while True:
        items, total = page(skip)
        known |= {key(item): item for item in items}
        skip += len(items)
        if total is None or not items or skip >= total:
            return [*known.values()]
