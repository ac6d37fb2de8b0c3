"""What the parts of the fake NVML have in common: the state that a test gives, and cards by index."""

from collections.abc import Sequence
from typing import Any

from mesos_gpu.model.nodes.gpu import Gpu


class State:
    """Where a part finds the rest; `FakeNvml` has it."""

    _gpus: Sequence[Gpu]

    def _now(self) -> Any:
        """The state as it is."""
        raise NotImplementedError

    def _put(self, state: Any) -> None:
        """Keep what was changed in it, for other processes."""
        raise NotImplementedError

    def _card(self, handle: int) -> Any:
        """What the state says of a card."""
        raise NotImplementedError

    def _fact(self, handle: int, name: str) -> Any:
        """What the state says of a card, for a query that a driver need not have."""
        raise NotImplementedError

    def _optional(self, handle: int) -> Gpu:
        """The card, for a query that a driver need not have."""
        raise NotImplementedError
