"""Lists of nodes and of GPUs, whole or a page of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import invalid
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.spec.cluster import lists
from mesos_gpu.api.v1 import views
from mesos_gpu.engine.reading.nodes import drain_of, gpu_page, gpu_statuses, node_amounts
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.wire.checking import Problem

_DESCENDING: Final = asked.Flag("descending")
_KEYS: Final[Mapping[lists.NodeOrder, Callable[[shapes.Node], Any]]] = {
    lists.NodeOrder.HOSTNAME: lambda node: node["hostname"],
    lists.NodeOrder.STATE: lambda node: (
        "drained" if node["drain"] and node["state"] == "up" else node["state"]
    ),
    lists.NodeOrder.GPUS: lambda node: node["gpus_total"],
    lists.NodeOrder.USED: lambda node: node["gpus_used"],
    lists.NodeOrder.SICK: lambda node: node["gpus_sick"],
    lists.NodeOrder.TASKS: lambda node: node["tasks"],
}


@dataclass(frozen=True, slots=True)
class Part:
    """A page of a list; without `limit` it has all entries after `skip`."""

    skip: int
    limit: int | None

    @classmethod
    def of(cls, request: Request) -> "Part":
        """Return the page that a query describes.

        Raises:
            Refusal: A number is not valid.
        """
        limit = int(asked.MAX_LISTED.of(request)) if asked.MAX_LISTED.name in request.query_params else None
        return cls(int(asked.SKIP.of(request)), limit)

    @property
    def end(self) -> int | None:
        """End of the page; None for the end of the list."""
        return None if self.limit is None else self.skip + self.limit


@dataclass(frozen=True, slots=True)
class NodeListing:
    """A request for a list of nodes. `search`: part of a host name, agent id or state; empty for all."""

    part: Part
    search: str
    order: lists.NodeOrder
    descending: bool

    @classmethod
    def of(cls, request: Request) -> "NodeListing":
        """Return the listing that a query describes.

        Raises:
            Refusal: A number or the order is not valid.
        """
        text = request.query_params.get("order", lists.NodeOrder.HOSTNAME.value)
        orders = [order.value for order in lists.NodeOrder]
        if text not in orders:
            raise invalid(Problem("/order", f"{text[:40]!r} is not an order; orders are {', '.join(orders)}"))
        search = request.query_params.get("search", "").strip().lower()
        return cls(Part.of(request), search, lists.NodeOrder(text), _DESCENDING.of(request))

    @property
    def is_whole(self) -> bool:
        """Whether all nodes are requested in their default order."""
        whole = Part(0, None), "", lists.NodeOrder.HOSTNAME, False
        return (self.part, self.search, self.order, self.descending) == whole

    def select(self, view: View, whole: Callable[[View], Sequence[shapes.Node]]) -> lists.NodePage:
        """Return the requested page of nodes, and the number of all matching ones.

        Where names are enough to choose nodes, details of others are not computed. `whole`: returns the list of all
        nodes.
        """
        if self.is_whole:
            nodes = list(whole(view))
            return {"nodes": nodes, "total": len(nodes)}
        matching = [node for node in view.nodes.values() if self._finds(view, node)]
        if self.order is lists.NodeOrder.HOSTNAME:
            matching.sort(key=lambda node: (node.hostname, node.id), reverse=self.descending)
            return {"nodes": shown(view, self._cut(matching)), "total": len(matching)}
        agent_ids = {node.id for node in matching}
        listed = [node for node in whole(view) if node["agent_id"] in agent_ids]
        listed.sort(key=_KEYS[self.order], reverse=self.descending)
        return {"nodes": list(self._cut(listed)), "total": len(listed)}

    def _finds(self, view: View, node: Node) -> bool:
        if not self.search:
            return True
        state = "drained" if drain_of(view, node.hostname) else views.node_state(node)
        return any(self.search in text.lower() for text in (node.hostname, node.id, state))

    def _cut(self, items: Sequence[Any]) -> Sequence[Any]:
        return items[self.part.skip : self.part.end]


def all_nodes(view: View, hostname: str | None = None) -> list[shapes.Node]:
    """Return all nodes by host name, or the agents of one host."""
    nodes = [node for node in view.nodes.values() if hostname in (None, node.hostname)]
    return shown(view, sorted(nodes, key=lambda node: (node.hostname, node.id)))


def shown(view: View, nodes: Sequence[Node]) -> list[shapes.Node]:
    """Return nodes as the REST interface shows them."""
    agents = {node.id for node in nodes}
    live = Counter(
        task.agent_id
        for task in view.tasks.values()
        if task.agent_id in agents and task.job_id and not task.ended
    )
    gpus: dict[AgentId, list[GpuStatus]] = defaultdict(list)
    hosts = {node.hostname for node in nodes}
    for status in gpu_statuses(view, None if len(nodes) == len(view.nodes) else hosts.__contains__):
        gpus[status.node.id].append(status)
    amounts = node_amounts(view, agents)
    return [views.node(view, node, gpus[node.id], live[node.id], amounts.get(node.id)) for node in nodes]


def cards(view: View, on: Callable[[str], bool] | None, part: Part, sight: Sight) -> lists.GpuPage:
    """Return a page of all GPUs by host name and index, and their number.

    `on`: returns whether the GPUs of a host are requested, by its name; None for all hosts.
    """
    statuses, total = gpu_page(view, on, part.skip, part.limit)
    return {"gpus": [views.gpu(view, status, sight) for status in statuses], "total": total}
