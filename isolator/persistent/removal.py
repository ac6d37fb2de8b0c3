"""Removal of persistent volumes by the node monitor, as the scheduler asks for it."""

import logging
import threading
from collections.abc import Mapping, Sequence

from isolator.persistent.root import PersistentRoot
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.gpu import MAX_REMOVALS, VolumeRoot

logger = logging.getLogger("isolator.monitor")


class Removal:
    """Removal of the volumes that the scheduler requested last.

    Requests are not kept over a restart: the scheduler repeats them until a report says that a volume is
    gone.

    Args:
        own: Environment of the monitor.
    """

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own
        self._turn = threading.Lock()
        self._removed: tuple[str, ...] = ()
        self._problem = ""  # last problem that was logged

    def look(self) -> VolumeRoot | None:
        """Return the state of the root of volumes, for the monitor's report; None if this host keeps no volumes."""
        try:
            root = PersistentRoot.of(self._own)
        except BadConfiguration as error:
            if error.what != self._problem:
                logger.error("%s", error)
            self._problem = error.what
            return VolumeRoot(problem=error.what)
        if root is None:
            return None
        with root:
            return VolumeRoot(removed=self._removed)

    def begin(self, volumes: Sequence[str]) -> None:
        """Remove volumes on a thread of its own, unless an earlier removal is still at work."""
        if self._turn.acquire(blocking=False):
            threading.Thread(target=self._work, args=(volumes[:MAX_REMOVALS],), daemon=True).start()

    def _work(self, volumes: Sequence[str]) -> None:
        try:
            root = PersistentRoot.of(self._own)
            if root is None:
                return
            with root:
                self._removed = tuple([volume for volume in volumes if root.remove(volume)])
            left = len(volumes) - len(self._removed)
            logger.info("removed %d persistent volumes; %d cannot be removed", len(self._removed), left)
        except (BadConfiguration, OSError, ValueError) as error:
            logger.error("persistent volumes cannot be removed: %s", error)
        finally:
            self._turn.release()
