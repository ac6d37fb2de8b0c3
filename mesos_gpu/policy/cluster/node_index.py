"""Index of the agents with offers, on which tasks are placed by array operations. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.capacity.altered import PatchedNodes
from mesos_gpu.policy.capacity.fit import Chosen, Misfit, beside_all, fit, room_for, share_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.cluster.fragmentation import Mix
from mesos_gpu.policy.cluster.local import closest
from mesos_gpu.policy.cluster.registry import POLICIES
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.share_rows import Mask, ShareRows, shape_for
from mesos_gpu.policy.cluster.view import NEVER, View
from mesos_gpu.policy.sharing.cards import Order, tightest


class NodeIndex:
    """Nodes with offers as rows of arrays, one row for each GPU model of an agent, as a job never gets a mix of models.

    There is one view (set of arrays) for each placement policy in use.

    Args:
        nodes: Nodes of the index.
        mix: Function that returns the statistics of recent requests; called once, for the first job that is placed by
            fragmentation.
    """

    def __init__(self, nodes: Iterable[NodeCapacity], mix: Callable[[], Mix]) -> None:
        ordered = sorted(nodes, key=lambda node: (node.hostname, node.agent_id))
        self._known = {node.agent_id: node for node in ordered}
        self._rows = [(node.agent_id, model) for node in ordered for model in _models(node)]
        self._of: dict[AgentId, list[int]] = {}
        for row, (agent_id, _) in enumerate(self._rows):
            self._of.setdefault(agent_id, []).append(row)
        self._mix = mix
        self.nodes = dict(self._known)  # nodes that have offers now
        self._away: dict[AgentId, None] = {}  # known agents without offers now
        self._there = np.ones(len(self._rows), dtype=bool)  # whether the agent of a row has offers now
        self._views: dict[tuple[str, bool], View] = {}  # by policy, and whether for shares of GPUs
        self._without_gpus = np.array([not self._known[agent_id].installed for agent_id, _ in self._rows])
        self._new_enough: dict[str, Mask] = {}
        self._width = max([max(len(node.installed), len(node.gpus)) for node in ordered] + [1])
        amounts = [_usable(self._known[agent_id]).milli for agent_id, _ in self._rows]
        self._usable = np.array(amounts, dtype=np.int64).reshape(len(self._rows), len(NOTHING.milli))
        #: Number of suitable free GPUs in each row, by requirements.
        self._suited: dict[GpuRequest, npt.NDArray[np.int64]] = {}
        self._shares: ShareRows | None = None  # built when a share is first requested
        #: The last `unused` argument of `place`, and the masks made from it.
        self._by_use: tuple[Mapping[AgentId, int], list[Mask]] | None = None

    def _state(self, row: int, *, shares: bool) -> Row:
        """Return a row's free amounts: for requests for shares, or for whole GPUs."""
        agent_id, model = self._rows[row]
        if shares:
            return self._of_shares().state(row, self._known[agent_id], model)
        node = self._known[agent_id]
        open_ids = [part.gpu_id for part in node.parts]
        slots = [WHOLE for gpu in node.gpus if gpu.model == model and gpu.id not in open_ids]
        slots = slots[: node.free.gpus]
        free = (*slots, *[0] * (self._width - len(slots)))
        return Row(node.free.cpu_milli, math.floor(node.free.mem_mib), free, model)

    def _of_shares(self) -> ShareRows:
        """Return the index for shares; build it at first use."""
        if self._shares is None:
            rows = [(self._known[agent_id], model) for agent_id, model in self._rows]
            self._shares = ShareRows(rows, self._width)
        return self._shares

    def _view(self, placement: str, *, shares: bool) -> View:
        """Return the view for a placement policy; build it at first use."""
        view = self._views.get((placement, shares))
        if view is None:
            self._clear_away()  # a new view must not see offers that have gone
            states = [self._state(row, shares=shares) for row in range(len(self._rows))]
            view = View(states, POLICIES[placement].make(self._mix, 0))
            self._views[placement, shares] = view
        return view

    def most(self) -> Resources:
        """Return, for each resource, an amount that no node exceeds; at least 0."""
        usable = self._usable[self._there] if self._away else self._usable
        if not len(usable):
            return NOTHING
        return Resources.of_milli(np.maximum(usable.max(axis=0), 0).tolist())

    def knows(self, node: NodeCapacity) -> bool:
        """Return whether `update` accepts a node; a new agent, or one with other hardware, needs a new index."""
        old = self._known.get(node.agent_id)
        return (
            old is not None
            and old.driver == node.driver
            and (not old.installed) == (not node.installed)
            and len(node.installed) <= self._width
            and [self._rows[row][1] for row in self._of[node.agent_id]] == _models(node)
        )

    def leave(self, agent_id: AgentId) -> None:
        """Take an agent without offers out of the choice; its rows are kept, as it mostly comes back unchanged."""
        del self.nodes[agent_id]
        self._away[agent_id] = None
        self._there[self._of[agent_id]] = False

    def _clear_away(self) -> None:
        """Set the free amounts of agents without offers to 0 in the arrays."""
        for agent_id in self._away:
            self._write(replace(self._known[agent_id], free=NOTHING, gpus=()))

    def ask_again(self) -> None:
        """Drop the views that depend on the mix of recent requests, so that the next use reads a new mix."""
        self._views = {key: view for key, view in self._views.items() if not POLICIES[key[0]].by_mix}

    def update(self, node: NodeCapacity) -> None:
        """Take over a node's new free amounts, or its return to the choice."""
        self.nodes[node.agent_id] = node
        if node.agent_id in self._away:
            del self._away[node.agent_id]
            self._there[self._of[node.agent_id]] = True
            if node == self._known[node.agent_id]:
                return  # fast path: the arrays are still right; often all agents go and come back at once
        self._write(node)

    def _write(self, node: NodeCapacity) -> None:
        """Write a node's free amounts into all arrays."""
        self._known[node.agent_id] = node
        if self._shares is not None and self._shares.is_beyond(node):
            self._shares = None
            self._views = {key: view for key, view in self._views.items() if not key[1]}
        usable = _usable(node).milli
        for row in self._of[node.agent_id]:
            self._usable[row] = usable
            for (_, shares), view in self._views.items():
                view.set_row(row, self._state(row, shares=shares))
            for needs, counts in self._suited.items():
                counts[row] = len(needs.suited(node.gpus, self._rows[row][1]))

    def place(
        self,
        request: Request,
        open_to: Mapping[AgentId, NodeCapacity],
        placement: str = "bundle",
        siblings: Mapping[AgentId, int] | None = None,
        *,
        gpu_nodes: str = "last",
        draw: int | None = None,
        busy: Mapping[AgentId, int] = MappingProxyType({}),
        unused: Mapping[AgentId, int] = MappingProxyType({}),
    ) -> Chosen | None:
        """Return the best node and GPUs for a task; None if it fits nowhere.

        Args:
            request: Requirements of the task.
            open_to: Nodes that the task may use, unchanged or reduced for this job.
            placement: Name of a placement policy, one of `registry.POLICIES`.
            siblings: Number of tasks of the same app by agent; `spread` prefers agents with the fewest.
            draw: Number to break ties, as in `View.best`.
            busy: Load of starting tasks by agent; among equal choices for a task without GPUs, lower load is preferred.
            gpu_nodes: Use of agents with GPUs by tasks without GPUs: "last", "never" or "always".
            unused: Number of wholly free groups of the fabric that each agent is a part of; fewer are preferred. The
                mapping must not change.
        """
        view = self._view(placement, shares=request.gpu.share is not None)
        load = self._load(busy) if busy and not request.gpu.count else None
        allowed = self._allowed(request, open_to)
        masks = [allowed]
        if not request.gpu.count and gpu_nodes != "always":
            off_gpus = self._without_gpus if allowed is None else allowed & self._without_gpus
            masks = [off_gpus] if gpu_nodes == "never" else [off_gpus, allowed]
        if POLICIES[placement].apart and siblings:
            masks = _narrower(masks, self._split_by(siblings))
        if unused:
            if self._by_use is None or self._by_use[0] is not unused:
                self._by_use = unused, self._split_by(unused)
            masks = _narrower(masks, self._by_use[1])
        for model in (request.gpu.models if request.gpu.count else ()) or (None,):
            number = view.shape(self._shape(request, model))
            for mask in self._narrowed(request, masks, view, number, placement):
                while (row := view.best(number, mask, draw, load)) is not None:
                    chosen = self._confirmed(row, request, open_to, placement)
                    if chosen is not None:
                        return chosen
                    mask = self._but(mask, [row])
        return None

    def keys(self, request: Request, placement: str, *, gpu_nodes: str = "last") -> dict[AgentId, int]:
        """Return the placement key of each agent for a task, the lowest being best, without agents that cannot take it.

        Args:
            request: Requirements of the task, with GPUs of one model or of any.
            placement: Name of a placement policy, one of `registry.POLICIES`.
            gpu_nodes: Use of agents with GPUs by tasks without GPUs: "last", "never" or "always".
        """
        view = self._view(placement, shares=request.gpu.share is not None)
        keys, best = view.keys(view.shape(self._shape(request, _model(request)))), dict[AgentId, int]()
        off_gpus = not request.gpu.count and gpu_nodes != "always"
        for row, ((agent_id, _), key) in enumerate(zip(self._rows, keys, strict=True)):
            if key == NEVER or agent_id in self._away:
                continue
            if off_gpus and not self._without_gpus[row]:
                if gpu_nodes == "never":
                    continue
                key += NEVER
            best[agent_id] = min(key, best.get(agent_id, key))
        return best

    def place_on(self, request: Request, node: NodeCapacity, placement: str) -> Chosen | None:
        """Return the GPUs that a task gets on one node; None if it does not fit.

        Args:
            request: Requirements of the task, with GPUs of one model or of any.
            node: Node, unchanged or reduced for this job.
            placement: Name of a placement policy, one of `registry.POLICIES`.
        """
        view = self._view(placement, shares=request.gpu.share is not None)
        model = _model(request)
        number = view.shape(self._shape(request, model))
        rows = [row for row in self._of[node.agent_id] if model is None or self._rows[row][1] == model]
        for row in sorted(rows, key=lambda row: (view.key(row, number), row)):
            if (chosen := self._confirmed(row, request, {node.agent_id: node}, placement)) is not None:
                return chosen
        return None

    def _load(self, busy: Mapping[AgentId, int]) -> npt.NDArray[np.int64]:
        """Return the load of starting tasks of the agent in each row."""
        load = np.zeros(len(self._rows), dtype=np.int64)
        for agent_id, count in busy.items():
            load[self._of.get(agent_id, [])] = count
        return load

    def _confirmed(
        self, row: int, request: Request, open_to: Mapping[AgentId, NodeCapacity], placement: str
    ) -> Chosen | None:
        """Return the GPUs that a task gets on the node of a row; None if `fit` finds that it does not fit."""
        agent_id, model = self._rows[row]
        node = open_to.get(agent_id)
        if node is None:
            return None
        if request.gpu.count and len(self._of[agent_id]) > 1:
            request = request.of_model(model)
        if request.gpu.share is not None:
            chosen = share_for(request, beside_all(node), order=self._order(row, request, placement))
            return None if chosen is None or isinstance(fit(request, node), Misfit) else chosen
        if isinstance(fit(request, node), Misfit):
            return None
        if not request.gpu.count:
            return Chosen(agent_id, ())
        (gpus,) = node.usable(request.gpu)
        return Chosen(agent_id, closest(gpus, request.gpu.count))

    def _order(self, row: int, request: Request, placement: str) -> Order:
        """Return the order in which GPUs of a node are used for shares."""
        order = POLICIES[placement].order
        if order is not None:
            return order
        view, (agent_id, model) = self._view(placement, shares=True), self._rows[row]
        number = view.shape(self._shape(request, model))
        if request.gpu.count > 1 or not view.fits(row, number).any():
            return tightest
        gpus = [gpu for gpu in self._known[agent_id].gpus if gpu.model == model]
        best = gpus[view.device(row, number)].id
        return lambda card: (card.gpu.id != best, *tightest(card))

    def _narrowed(
        self, request: Request, masks: list[Mask | None], view: View, shape: int, placement: str
    ) -> list[Mask | None]:
        """Remove rows from masks that `fit` would only rule out later, one by one."""
        if request.gpu.share is None:
            return masks
        room = view.fits(slice(None), shape)
        return self._of_shares().narrowed(request, room, masks, fills=POLICIES[placement].fills)

    def _allowed(self, request: Request, open_to: Mapping[AgentId, NodeCapacity]) -> Mask | None:
        """Return the mask of rows that may be chosen; None for all."""
        masks = [self._there] if self._away else []
        if request.min_driver is not None:
            masks.append(self._drivers(request.min_driver))
        if request.gpu.count and request.gpu.choosy:
            masks.append(self._counts(request.gpu) >= request.gpu.count)
        if request.gpu.share is not None:
            masks.append(self._of_shares().granting(request))
        if any(request.resources.unindexed):
            unindexed = self._usable[:, -len(NOTHING.unindexed) :]
            masks.append(np.asarray((unindexed >= request.resources.unindexed).all(axis=1)))
        mask = None
        for criterion in masks:
            mask = criterion if mask is None else mask & criterion
        closed = [
            row
            for agent_id in _others(self.nodes, open_to)
            for row in self._of[agent_id]
            if not self._still_fits(row, request, open_to.get(agent_id))
        ]
        return self._but(mask, closed) if closed else mask

    def _but(self, mask: Mask | None, rows: list[int]) -> Mask:
        left = np.ones(len(self._rows), dtype=bool) if mask is None else mask.copy()
        left[rows] = False
        return left

    def _still_fits(self, row: int, request: Request, node: NodeCapacity | None) -> bool:
        """Return whether a job's reduced view of a node still has room in a row; false if the job may not use it."""
        model = self._rows[row][1] if request.gpu.count else None
        return node is not None and room_for(request, node, model).slots > 0

    def _counts(self, request: GpuRequest) -> npt.NDArray[np.int64]:
        """Return the number of free GPUs in each row that are suitable; those of one model may differ in memory."""
        needs = GpuRequest(memory_mib=request.memory_mib, compute_capability=request.compute_capability)
        if needs not in self._suited:
            counts = [len(needs.suited(self._known[agent_id].gpus, model)) for agent_id, model in self._rows]
            self._suited[needs] = np.array(counts, dtype=np.int64)
        return self._suited[needs]

    def _drivers(self, least: str) -> Mask:
        """Return the mask of rows whose driver is new enough."""
        if least not in self._new_enough:
            able = [as_new_as(self._known[agent_id].driver, least) for agent_id, _ in self._rows]
            self._new_enough[least] = np.array(able, dtype=bool)
        return self._new_enough[least]

    def _split_by(self, by_agent: Mapping[AgentId, int]) -> list[Mask]:
        """Return the masks of the rows of agents with the same count, the lowest count first."""
        counts = np.array([by_agent.get(agent_id, 0) for agent_id, _ in self._rows])
        return [counts == count for count in sorted(set(counts.tolist()))]

    def _shape(self, request: Request, model: str | None) -> Shape:
        """Return the shape of a request with GPUs of one model, or of any for None."""
        models, need, want = () if model is None else (model,), request.resources, request.gpu
        shape = Shape(need.cpu_milli, math.ceil(need.mem_mib), want.count, models=models)
        return shape if want.share is None else shape_for(want.share, self._of_shares().largest_mib, shape)


def _others(
    nodes: Mapping[AgentId, NodeCapacity], open_to: Mapping[AgentId, NodeCapacity]
) -> Iterable[AgentId]:
    """Return the agents that a job may not use, or only with reduced capacity."""
    if isinstance(open_to, PatchedNodes) and open_to.base is nodes:
        return open_to.changes
    if open_to is nodes:
        return ()
    return [agent_id for agent_id, node in nodes.items() if open_to.get(agent_id) is not node]


def _narrower(masks: Iterable[Mask | None], parts: Sequence[Mask]) -> list[Mask | None]:
    """Return each mask divided into parts."""
    return [part if mask is None else mask & part for mask in masks for part in parts]


def _model(request: Request) -> str | None:
    """Return the preferred GPU model of a request; None without one."""
    return request.gpu.models[0] if request.gpu.count and request.gpu.models else None


def _usable(node: NodeCapacity) -> Resources:
    """Return a node's free amounts with at most as many GPUs as are known to be free."""
    free, gpus = node.free, len(node.gpus)
    return free if free.gpus <= gpus else free.with_gpus(gpus)


def _models(node: NodeCapacity) -> list[str]:
    """Return the GPU models of a node; [""] for a node without GPUs."""
    return node.models or [""]
