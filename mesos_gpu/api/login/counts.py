"""How many proofs were wrong, for who watches this scheduler."""

import threading
from collections.abc import Mapping
from typing import Final

from mesos_gpu.access import proofs

HEADERS: Final = "headers"  # of no kind that is known
SESSION: Final = "session"


class WrongProofs:
    """Counts by kind; from any thread."""

    def __init__(self) -> None:
        """None was wrong yet."""
        self._lock = threading.Lock()
        self._counts = dict.fromkeys((*(kind.value for kind in proofs.ORDER), SESSION, HEADERS), 0)

    def count(self, kind: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[kind] += 1

    def read(self) -> Mapping[str, int]:
        """Read all, those that are 0 too."""
        with self._lock:
            return dict(self._counts)


WRONG: Final = WrongProofs()  # of this process
