"""The agents whose offers are on the table, placed on by the arrays of the simulator. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.cluster.fragmentation import Fragmentation, Mix
from mesos_gpu.policy.cluster.local import closest
from mesos_gpu.policy.cluster.placement import Ask, Candidate, Chosen
from mesos_gpu.policy.cluster.policies import Bundle, Spread
from mesos_gpu.policy.cluster.shapes import WHOLE, NodeState, Shape
from mesos_gpu.policy.cluster.view import Policy, View

Mask = npt.NDArray[np.bool_]
_ANYTHING: Final = Ask(0, 0)
PLACEMENTS: Final = ("bundle", "spread", "fragmentation")


class Board:
    """Candidates as rows of views: one row for each model that an agent has, for a job never gets a mix of models.
    There is one view for each policy that is asked for."""

    def __init__(self, candidates: Iterable[Candidate], mix: Callable[[], Mix]) -> None:
        """`mix`: what is asked for lately; called once, if a job wants to be placed by fragmentation."""
        ordered = sorted(candidates, key=lambda candidate: (candidate.hostname, candidate.agent_id))
        self._known = {candidate.agent_id: candidate for candidate in ordered}
        self._rows = [(each.agent_id, model) for each in ordered for model in _models(each)]
        self._of: dict[AgentId, list[int]] = {}
        for row, (agent_id, _) in enumerate(self._rows):
            self._of.setdefault(agent_id, []).append(row)
        self._mix = mix
        self._gone: set[AgentId] = set()
        self._views: dict[str, View] = {}
        self._without_gpus = np.array([self._known[agent_id].gpus_total == 0 for agent_id, _ in self._rows])
        self._new_enough: dict[str, Mask] = {}
        self._width = max([each.gpus_total for each in ordered] + [len(each.free) for each in ordered] + [1])
        self._disk_mib = np.array([self._known[agent_id].disk_mib for agent_id, _ in self._rows], dtype=float)
        self._suited: dict[Ask, npt.NDArray[np.int64]] = {}  # by what GPUs must have: by row, those that do

    def _state(self, row: int) -> NodeState:
        agent_id, model = self._rows[row]
        candidate = self._known[agent_id]
        free = min(sum(gpu.model == model for gpu in candidate.free), candidate.gpus_offered)
        slots = (WHOLE,) * free + (0,) * (self._width - free)
        return NodeState(
            math.floor(candidate.cpus * 1000 + 1e-6), math.floor(candidate.mem_mib), slots, model
        )

    def _view(self, placement: str) -> View:
        if placement not in self._views:
            policies: dict[str, Callable[[], Policy]] = {
                "bundle": Bundle,
                "spread": Spread,
                "fragmentation": lambda: Fragmentation(self._mix()),
            }
            states = [self._state(row) for row in range(len(self._rows))]
            self._views[placement] = View(states, policies[placement]())
        return self._views[placement]

    def knows(self, candidate: Candidate) -> bool:
        """Whether `update` can take it: an agent of other hardware, or a new one, needs another board."""
        old = self._known.get(candidate.agent_id)
        return (
            old is not None
            and old.driver == candidate.driver
            and (old.gpus_total == 0) == (candidate.gpus_total == 0)
            and candidate.gpus_total <= self._width
            and [self._rows[row][1] for row in self._of[candidate.agent_id]] == _models(candidate)
        )

    def leave(self, agent_id: AgentId) -> None:
        """Nothing of the agent is on the table any more; it may come back."""
        nothing = replace(self._known[agent_id], cpus=0.0, mem_mib=0.0, gpus_offered=0, free=(), disk_mib=0.0)
        self.update(nothing)
        self._gone.add(agent_id)

    def ask_again(self) -> None:
        """What is asked for lately may be something else by now."""
        self._views.pop("fragmentation", None)

    def update(self, candidate: Candidate) -> None:
        """Something else is free there."""
        self._gone.discard(candidate.agent_id)
        self._known[candidate.agent_id] = candidate
        for row in self._of[candidate.agent_id]:
            self._disk_mib[row] = candidate.disk_mib
            for view in self._views.values():
                view.set_row(row, self._state(row))
            for needs, counts in self._suited.items():
                counts[row] = len(_that_do(candidate, self._rows[row][1], needs))

    def place(
        self,
        ask: Ask,
        open_to: Mapping[AgentId, Candidate],
        placement: str = "bundle",
        siblings: Mapping[AgentId, int] | None = None,
        *,
        gpu_nodes: str = "last",
        draw: int | None = None,
    ) -> Chosen | None:
        """Where the ask fits best; None: nowhere.

        Args:
            ask: What a launch takes.
            open_to: The candidates that it may use, each as it is, or with less for this job's use.
            placement: One of PLACEMENTS.
            siblings: How many tasks of the same app each agent has; `spread` goes where there are the fewest.
            draw: For ties, as of `View.best`.
            gpu_nodes: Whether what needs no GPU may go to agents that have some: "last", "never", "always".
        """
        view, allowed = self._view(placement), self._allowed(ask, open_to)
        masks = [allowed]
        if not ask.gpus and gpu_nodes != "always":
            off_gpus = self._without_gpus if allowed is None else allowed & self._without_gpus
            masks = [off_gpus] if gpu_nodes == "never" else [off_gpus, allowed]
        if placement == "spread" and siblings:
            masks = [narrow for mask in masks for narrow in self._by_siblings(mask, siblings)]
        for model in (ask.models if ask.gpus else ()) or (None,):
            number = view.shape(_shape(ask, model))
            for mask in masks:
                row = view.best(number, mask, draw)
                if row is not None:
                    return self._chosen(row, ask, open_to)
        return None

    def _chosen(self, row: int, ask: Ask, open_to: Mapping[AgentId, Candidate]) -> Chosen:
        agent_id, model = self._rows[row]
        free = _that_do(open_to[agent_id], model, ask)
        return Chosen(agent_id, closest(free, ask.gpus) if ask.gpus else ())

    def _allowed(self, ask: Ask, open_to: Mapping[AgentId, Candidate]) -> Mask | None:
        """Which rows may be chosen; None: all."""
        mask = self._drivers(ask.min_driver) if ask.min_driver is not None else None
        if ask.gpus and ask.choosy:
            enough = self._counts(ask) >= ask.gpus
            mask = enough if mask is None else mask & enough
        if ask.disk_mib:
            enough = self._disk_mib >= ask.disk_mib
            mask = enough if mask is None else mask & enough
        closed = [
            row
            for agent_id, known in self._known.items()
            if open_to.get(agent_id) is not known and agent_id not in self._gone
            for row in self._of[agent_id]
            if not self._still_fits(row, ask, open_to.get(agent_id))
        ]
        if closed:
            mask = np.ones(len(self._rows), dtype=bool) if mask is None else mask.copy()
            mask[closed] = False
        return mask

    def _still_fits(self, row: int, ask: Ask, candidate: Candidate | None) -> bool:
        if candidate is None or candidate.cpus < ask.cpus or candidate.mem_mib < ask.mem_mib:
            return False
        if candidate.disk_mib < ask.disk_mib:
            return False
        free = len(_that_do(candidate, self._rows[row][1], ask))
        return ask.gpus <= min(free, candidate.gpus_offered) or not ask.gpus

    def _counts(self, ask: Ask) -> npt.NDArray[np.int64]:
        """Of each row, the free GPUs that will do: those of one model may differ in their memory."""
        needs = replace(
            _ANYTHING, gpu_memory_mib=ask.gpu_memory_mib, compute_capability=ask.compute_capability
        )
        if needs not in self._suited:
            counts = [len(_that_do(self._known[agent_id], model, needs)) for agent_id, model in self._rows]
            self._suited[needs] = np.array(counts, dtype=np.int64)
        return self._suited[needs]

    def _drivers(self, least: str) -> Mask:
        if least not in self._new_enough:
            able = [as_new_as(self._known[agent_id].driver, least) for agent_id, _ in self._rows]
            self._new_enough[least] = np.array(able, dtype=bool)
        return self._new_enough[least]

    def _by_siblings(self, mask: Mask | None, siblings: Mapping[AgentId, int]) -> list[Mask]:
        """The same, the agents with the fewest tasks of the app first."""
        counts = np.array([siblings.get(agent_id, 0) for agent_id, _ in self._rows])
        masks = [counts == count for count in sorted(set(counts.tolist()))]
        return masks if mask is None else [mask & each for each in masks]


def _models(candidate: Candidate) -> list[str]:
    return list(candidate.models) or sorted({gpu.model for gpu in candidate.free}) or [""]


def _that_do(candidate: Candidate, model: str, ask: Ask) -> list[Gpu]:
    """Of a candidate's free GPUs of one model."""
    free = [gpu for gpu in candidate.free if gpu.model == model]
    return list(filter(ask.takes, free)) if ask.choosy else free


def _shape(ask: Ask, model: str | None) -> Shape:
    cpu_milli, mem_mib = math.ceil(ask.cpus * 1000 - 1e-6), math.ceil(ask.mem_mib)
    return Shape(cpu_milli, mem_mib, ask.gpus, WHOLE, () if model is None else (model,))
