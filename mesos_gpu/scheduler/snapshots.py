"""Saved access rights for any thread, and saved state and past GPU use for the engine's thread."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model import saves
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.nodes.gpu_use import TaskUse
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import Saved
from mesos_gpu.policy.gpus.use_series import UseHistory

USE_S: Final = 60.0  # minimum interval of recorded uses of one token
_SEEN: Final = (
    "connected", "master_url", "registered_at", "disbelieved", "offers", "unused", "healths", "check_results",
    "readiness", "checked",
)  # fmt: skip


class Snapshots:
    """The latest saved access document and tokens, which are immutable, and views of the state.

    Args:
        state: State of the engine.
        load: Function that loads what is saved.
    """

    def __init__(self, state: State, load: Callable[[], Saved]) -> None:
        self._state, self._load = state, load
        self._on_disk: State | None = None  # loaded on the first read while nothing can be saved
        self.access: AccessDocument = state.rights.access
        self.tokens: Mapping[str, Token] = _tokens(state)
        self._history = UseHistory()

    def view(self, settings: Settings, now: float, unsaved: str) -> View:
        """Return a view of the current state, on the engine's thread; `unsaved` is why nothing can be saved, else "".

        Changes that cannot be saved are not shown: the next leader, or this scheduler after a restart, would not have
        them.
        """
        return View(self._saved() if unsaved else self._state, settings, now, unsaved, self._history)

    def _saved(self) -> State:
        """Return the saved state, with current values of what is observed and never saved."""
        if self._on_disk is None:
            self._on_disk = State.restored(self._state.started_at, self._load())
        for name in _SEEN:
            setattr(self._on_disk.part_with(name), name, getattr(self._state.part_with(name), name))
        return self._on_disk

    def saved(self, effects: Iterable[fx.Effect], now: float) -> None:
        """Publish what was saved; on the engine's thread, before callers get answers that follow from it.

        Args:
            effects: Effects of a batch of events.
            now: Seconds since the epoch.
        """
        effects, self._on_disk = list(effects), None
        kinds = {type(effect) for effect in effects}
        if saves.SaveAccess in kinds:
            self.access = self._state.rights.access
        if saves.SaveToken in kinds or saves.ForgetToken in kinds:
            self.tokens = _tokens(self._state)
        if saves.SaveNode in kinds:
            self._note(effect.node for effect in effects if isinstance(effect, saves.SaveNode))
        self._history.sample(now, self._state.cluster.placed, self._state.gpus.is_allocated)

    def _note(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.reported_at is not None:
                self._history.note(node, node.reported_at, self._is_there)

    def _is_there(self, node: Node, use: TaskUse) -> bool:
        """Return whether a task is alive on a node and holds the GPU that it reportedly uses."""
        task = self._state.work.tasks.get(use.task_id)
        return task is not None and not task.ended and task.agent_id == node.id and use.gpu_id in task.gpus


def _tokens(state: State) -> Mapping[str, Token]:
    return MappingProxyType(dict(state.rights.tokens))


class Uses:
    """Times of token uses, of which few are worth a write; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, float] = {}

    def is_new(self, token_id: str, known: Mapping[str, Token]) -> bool:
        """Return whether a use of this token should be recorded now, and if so note the time. `known` are all
        tokens."""
        now = time.monotonic()
        with self._lock:
            if len(self._noted) > 2 * len(known):
                self._noted = {id: at for id, at in self._noted.items() if id in known}
            if token_id not in known or now - self._noted.get(token_id, -USE_S) < USE_S:
                return False
            self._noted[token_id] = now
            return True
