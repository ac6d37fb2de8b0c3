"""What any thread may read of who may do what, as it is on disk, in one piece; and the past use of cards, which only
the engine's thread may read."""

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

USE_S: Final = 60.0  # so often at most a token's use is kept
_SEEN: Final = (
    "connected", "master_url", "registered_at", "disbelieved", "offers", "unused", "healths", "check_results",
    "readiness", "checked",
)  # fmt: skip


class Snapshots:
    """The document and the tokens, the latest that were saved. Neither changes in the hands of who has it."""

    def __init__(self, state: State, load: Callable[[], Saved]) -> None:
        """Begin with what was loaded. `load`: loads what is saved by now."""
        self._state, self._load = state, load
        self._on_disk: State | None = None  # while nothing can be saved, once somebody has looked
        self.access: AccessDocument = state.rights.access
        self.tokens: Mapping[str, Token] = _tokens(state)
        self._history = UseHistory()

    def view(self, settings: Settings, now: float, unsaved: str) -> View:
        """The state at this moment, on the engine's thread. `unsaved`: why nothing can be saved; "": it can.

        What cannot be saved is not shown: who leads next, or this scheduler when it is started again, would not know of
        it.
        """
        return View(self._saved() if unsaved else self._state, settings, now, unsaved, self._history)

    def _saved(self) -> State:
        """The state without what is not on disk, and with what never is: it was seen, not decided."""
        if self._on_disk is None:
            self._on_disk = State.restored(self._state.started_at, self._load())
        for name in _SEEN:
            setattr(self._on_disk.part_with(name), name, getattr(self._state.part_with(name), name))
        return self._on_disk

    def saved(self, effects: Iterable[fx.Effect], now: float) -> None:
        """Take over what was saved; on the engine's thread, before anybody gets an answer that follows from it.

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
        """Whether a task lives on a node, and holds the card that it is said to use."""
        task = self._state.work.tasks.get(use.task_id)
        return task is not None and not task.ended and task.agent_id == node.id and use.gpu_id in task.gpus


def _tokens(state: State) -> Mapping[str, Token]:
    return MappingProxyType(dict(state.rights.tokens))


class Uses:
    """Uses of tokens, of which few are worth a write; from any thread."""

    def __init__(self) -> None:
        """None was used yet."""
        self._lock = threading.Lock()
        self._noted: dict[str, float] = {}

    def is_new(self, token_id: str, known: Mapping[str, Token]) -> bool:
        """Whether it is long since a use of this token was kept; if so, this one is. `known`: all that there are."""
        now = time.monotonic()
        with self._lock:
            if len(self._noted) > 2 * len(known):
                self._noted = {id: at for id, at in self._noted.items() if id in known}
            if token_id not in known or now - self._noted.get(token_id, -USE_S) < USE_S:
                return False
            self._noted[token_id] = now
            return True
