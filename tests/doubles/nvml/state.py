"""State of the double of NVML, which a test gives."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pynvml

from mesos_gpu.model.nodes.gpu import Gpu


class State:
    """Base class of the parts of the double of NVML: access to the state."""

    _gpus: Sequence[Gpu]
    _state: Mapping[str, Any] | Path

    def _now(self) -> Mapping[str, Any]:
        """Return the present state, which may be in a file."""
        if isinstance(self._state, Path):
            state: dict[str, Any] = json.loads(self._state.read_text())
            return state
        return self._state

    def _put(self, state: Any) -> None:
        """Write a changed state to its file, for other processes."""
        if isinstance(self._state, Path):
            self._state.write_text(json.dumps(state))

    def _card(self, handle: int) -> Mapping[str, Any]:
        """Return the state of a card."""
        card: Mapping[str, Any] = self._now().get("cards", {}).get(str(handle), {})
        return card

    def _well(self, handle: int) -> Gpu:
        """Return a card, or raise the error that its state has."""
        card = self._card(handle)
        if card.get("lost"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if card.get("reset_required"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_RESET_REQUIRED)
        if card.get("error"):
            raise pynvml.NVMLError(card["error"])
        return self._gpus[handle]

    def _optional(self, handle: int) -> Gpu:
        """Return a card, for a query that a driver need not have."""
        gpu = self._well(handle)
        if self._now().get("unsupported"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def _fact(self, handle: int, name: str) -> Any:
        """Return a fact of the state of a card, for a query that a driver need not have."""
        self._optional(handle)
        if name not in self._card(handle):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self._card(handle)[name]
