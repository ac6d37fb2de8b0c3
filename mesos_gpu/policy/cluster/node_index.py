"""The agents whose offers are on the table, placed on by the arrays of the simulator. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.share import WHOLE
from mesos_gpu.policy.capacity import (
    Chosen,
    GpuRequest,
    Misfit,
    NodeCapacity,
    Request,
    fit,
    room_for,
    share_for,
)
from mesos_gpu.policy.cluster.fragmentation import Mix
from mesos_gpu.policy.cluster.local import closest
from mesos_gpu.policy.cluster.registry import POLICIES
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import View
from mesos_gpu.policy.sharing.cards import emptiest, tightest

Mask = npt.NDArray[np.bool_]


class NodeIndex:
    """Candidates as rows of views: one row for each model that an agent has, for a job never gets a mix of models.
    There is one view for each policy that is asked for."""

    def __init__(self, nodes: Iterable[NodeCapacity], mix: Callable[[], Mix]) -> None:
        """`mix`: what is asked for lately; called once, if a job wants to be placed by fragmentation."""
        ordered = sorted(nodes, key=lambda node: (node.hostname, node.agent_id))
        self._known = {node.agent_id: node for node in ordered}
        self._rows = [(node.agent_id, model) for node in ordered for model in _models(node)]
        self._of: dict[AgentId, list[int]] = {}
        for row, (agent_id, _) in enumerate(self._rows):
            self._of.setdefault(agent_id, []).append(row)
        self._mix = mix
        self.nodes = dict(self._known)  # those of which something is on the table
        self._views: dict[str, View] = {}
        self._without_gpus = np.array([not self._known[agent_id].installed for agent_id, _ in self._rows])
        self._new_enough: dict[str, Mask] = {}
        self._width = max([max(len(node.installed), len(node.gpus)) for node in ordered] + [1])
        amounts = [self._known[agent_id].free.unindexed for agent_id, _ in self._rows]
        self._unindexed = np.array(amounts, dtype=np.int64).reshape(len(self._rows), len(NOTHING.unindexed))
        self._suited: dict[
            GpuRequest, npt.NDArray[np.int64]
        ] = {}  # by what GPUs must have: by row, those that do

    def _state(self, row: int) -> Row:
        agent_id, model = self._rows[row]
        node = self._known[agent_id]
        is_open = {part.gpu_id for part in node.parts}
        slots = [WHOLE for gpu in node.gpus if gpu.model == model and gpu.id not in is_open]
        slots = slots[: node.free.gpus]
        free = (*slots, *[0] * (self._width - len(slots)))
        return Row(node.free.cpu_milli, math.floor(node.free.mem_mib), free, model)

    def _view(self, placement: str) -> View:
        if placement not in self._views:
            states = [self._state(row) for row in range(len(self._rows))]
            self._views[placement] = View(states, POLICIES[placement].make(self._mix, 0))
        return self._views[placement]

    def knows(self, node: NodeCapacity) -> bool:
        """Whether `update` can take it: an agent of other hardware, or a new one, needs another index."""
        old = self._known.get(node.agent_id)
        return (
            old is not None
            and old.driver == node.driver
            and (not old.installed) == (not node.installed)
            and len(node.installed) <= self._width
            and [self._rows[row][1] for row in self._of[node.agent_id]] == _models(node)
        )

    def leave(self, agent_id: AgentId) -> None:
        """Nothing of the agent is on the table any more; it may come back."""
        self.update(replace(self._known[agent_id], free=NOTHING, gpus=()))
        del self.nodes[agent_id]

    def ask_again(self) -> None:
        """What is asked for lately may be something else by now."""
        self._views = {name: view for name, view in self._views.items() if not POLICIES[name].by_mix}

    def update(self, node: NodeCapacity) -> None:
        """Something else is free there."""
        self._known[node.agent_id] = self.nodes[node.agent_id] = node
        for row in self._of[node.agent_id]:
            self._unindexed[row] = node.free.unindexed
            for view in self._views.values():
                view.set_row(row, self._state(row))
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
    ) -> Chosen | None:
        """Where a task fits best; None: nowhere.

        Args:
            request: What it needs.
            open_to: The nodes that it may use, each as it is, or with less for this job's use.
            placement: One of `registry.POLICIES`.
            siblings: How many tasks of the same app each agent has; `spread` goes where there are the fewest.
            draw: For ties, as of `View.best`.
            gpu_nodes: Whether what needs no GPU may go to agents that have some: "last", "never", "always".
        """
        if request.gpu.share is not None:
            return _share(request, open_to, apart=POLICIES[placement].apart)
        view, allowed = self._view(placement), self._allowed(request, open_to)
        masks = [allowed]
        if not request.gpu.count and gpu_nodes != "always":
            off_gpus = self._without_gpus if allowed is None else allowed & self._without_gpus
            masks = [off_gpus] if gpu_nodes == "never" else [off_gpus, allowed]
        if POLICIES[placement].apart and siblings:
            masks = [narrow for mask in masks for narrow in self._by_siblings(mask, siblings)]
        for model in (request.gpu.models if request.gpu.count else ()) or (None,):
            number = view.shape(_shape(request, model))
            for mask in masks:
                while (row := view.best(number, mask, draw)) is not None:
                    chosen = self._confirmed(row, request, open_to)
                    if chosen is not None:
                        return chosen
                    mask = self._but(mask, [row])
        return None

    def _confirmed(
        self, row: int, request: Request, open_to: Mapping[AgentId, NodeCapacity]
    ) -> Chosen | None:
        """What a task gets there; None: it does not fit, whatever the arrays say."""
        agent_id, model = self._rows[row]
        node = open_to.get(agent_id)
        request = request.of_model(model) if request.gpu.count else request
        if node is None or isinstance(fit(request, node), Misfit):
            return None
        if not request.gpu.count:
            return Chosen(agent_id, ())
        if request.gpu.share is not None:
            return share_for(request, node)
        (gpus,) = node.usable(request.gpu)
        return Chosen(agent_id, closest(gpus, request.gpu.count))

    def _allowed(self, request: Request, open_to: Mapping[AgentId, NodeCapacity]) -> Mask | None:
        """Which rows may be chosen; None: all."""
        masks = [] if request.min_driver is None else [self._drivers(request.min_driver)]
        if request.gpu.count and request.gpu.choosy:
            masks.append(self._counts(request.gpu) >= request.gpu.count)
        if any(request.resources.unindexed):
            masks.append(np.asarray((self._unindexed >= request.resources.unindexed).all(axis=1)))
        mask = None
        for each in masks:
            mask = each if mask is None else mask & each
        closed = [
            row
            for agent_id, known in self.nodes.items()
            if open_to.get(agent_id) is not known
            for row in self._of[agent_id]
            if not self._still_fits(row, request, open_to.get(agent_id))
        ]
        return self._but(mask, closed) if closed else mask

    def _but(self, mask: Mask | None, rows: list[int]) -> Mask:
        """A mask without some rows."""
        left = np.ones(len(self._rows), dtype=bool) if mask is None else mask.copy()
        left[rows] = False
        return left

    def _still_fits(self, row: int, request: Request, node: NodeCapacity | None) -> bool:
        model = self._rows[row][1] if request.gpu.count else None
        return node is not None and room_for(request, node, model).slots > 0

    def _counts(self, request: GpuRequest) -> npt.NDArray[np.int64]:
        """The free GPUs of each row that will do: those of one model may differ in their memory."""
        needs = GpuRequest(memory_mib=request.memory_mib, compute_capability=request.compute_capability)
        if needs not in self._suited:
            counts = [len(needs.suited(self._known[agent_id].gpus, model)) for agent_id, model in self._rows]
            self._suited[needs] = np.array(counts, dtype=np.int64)
        return self._suited[needs]

    def _drivers(self, least: str) -> Mask:
        if least not in self._new_enough:
            able = [as_new_as(self._known[agent_id].driver, least) for agent_id, _ in self._rows]
            self._new_enough[least] = np.array(able, dtype=bool)
        return self._new_enough[least]

    def _by_siblings(self, mask: Mask | None, siblings: Mapping[AgentId, int]) -> list[Mask]:
        """Split the mask by how many tasks of the app an agent has, the fewest first."""
        counts = np.array([siblings.get(agent_id, 0) for agent_id, _ in self._rows])
        masks = [counts == count for count in sorted(set(counts.tolist()))]
        return masks if mask is None else [mask & each for each in masks]


def _share(request: Request, open_to: Mapping[AgentId, NodeCapacity], *, apart: bool) -> Chosen | None:
    """The node where a share does best: the fewest cards are opened for it, or, to be apart, as many as it takes."""
    for model in request.gpu.models or (None,):
        one, order = request.of_model(model), emptiest if apart else tightest
        fits = [node for node in open_to.values() if not isinstance(fit(one, node), Misfit)]
        places = [(node, share_for(one, node, order=order)) for node in fits]
        able = [(node, chosen) for node, chosen in places if chosen is not None]
        if able:
            sign = -1 if apart else 1
            return min(able, key=lambda each: (sign * len(each[1].opens), sign * len(each[0].gpus)))[1]
    return None


def _models(node: NodeCapacity) -> list[str]:
    return node.models or [""]


def _shape(request: Request, model: str | None) -> Shape:
    models, need = () if model is None else (model,), request.resources
    return Shape(need.cpu_milli, math.ceil(need.mem_mib), request.gpu.count, models=models)
