"""Long lists read in pages, so that no request occupies the scheduler for long."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesos_gpu.cli.reach.answers import Kind

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.lists import GpuPage, NodePage
    from mesos_gpu.api.spec.shapes import Gpu, Node

_T = TypeVar("_T")
_Get = Callable[[str, Any, dict[str, Any]], Any]  # (path, type, query) to the answer
_LISTS: Final = "mesos_gpu.api.spec.cluster.lists"
PAGE: Final = 2000  # GPUs or nodes per page


def every_gpu(get: _Get, nodes: Sequence[str]) -> "list[Gpu]":
    """Return all GPUs, or those of nodes given by names and patterns."""
    query = {"node": list(nodes)} if nodes else {}

    def page(skip: int) -> "tuple[list[Gpu], int | None]":
        answer: GpuPage = get("/v1/gpus", Kind("GpuPage", _LISTS), {**query, "skip": skip, "limit": PAGE})
        return answer["gpus"], answer["total"]

    return whole(page, lambda gpu: gpu["uuid"])


def every_node(get: _Get) -> "list[Node]":
    """Return all agents."""

    def page(skip: int) -> "tuple[list[Node], int | None]":
        answer: NodePage = get("/v1/nodes", Kind("NodePage", _LISTS), {"skip": skip, "limit": PAGE})
        return answer["nodes"], answer["total"]

    return whole(page, lambda node: f"{node['hostname']} {node['agent_id']}")


def whole(page: Callable[[int], tuple[Sequence[_T], int | None]], key: Callable[[_T], str]) -> list[_T]:
    """Return all items of a list. Items added or removed meanwhile may be included or not; none is included twice.

    Args:
        page: Function from a number of items to skip to the next items and the total count. A count of None means that
            these are all items, as from an earlier scheduler without pages.
        key: Function that returns an item's identity.
    """
    items_by_key: dict[str, _T] = {}
    skip = 0
    while True:
        items, total = page(skip)
        items_by_key |= {key(item): item for item in items}
        skip += len(items)
        if total is None or not items or skip >= total:
            return [*items_by_key.values()]
