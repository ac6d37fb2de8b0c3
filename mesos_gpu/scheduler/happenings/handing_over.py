"""Webhooks and the progress of their deliveries, also stored in the state for a scheduler that leads next.

The webhook file belongs to one scheduler and knows more: retry times and given-up deliveries. A scheduler whose own
name is in the state continues with its file; otherwise it continues with the state.
"""

from collections.abc import Callable
from concurrent.futures import Future

from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.model.saves import KeepHooks, KeepSent, Save, Saved
from mesos_gpu.model.tasks.hook import Sent

Keep = Callable[..., Future[None]]  # saves records with the engine's next batch
ALONE = ""  # name of a scheduler without standbys


class DeliveryProgress:
    """Webhooks and delivery progress found in the state, and their updates.

    `tell` is for one thread, other methods for any.

    Args:
        hooks: Store of webhooks, which adopts those of another scheduler.
        saved: State that was loaded.
        by: URL of this scheduler for the others, which is its name in the state.

    Raises:
        NoRoom: The disk is full.
    """

    def __init__(self, hooks: HookStore, saved: Saved, by: str = ALONE) -> None:
        self._hooks, self._by = hooks, by
        kept, sent = saved.hooks, saved.sent
        if kept and (kept.by not in (ALONE, by) or kept.version.version > hooks.latest.version):
            hooks.adopt(kept)
        is_others = sent is not None and sent.by != by and (sent.by != ALONE or hooks.seen() is None)
        #: Progress of another scheduler; None if the file of this one is up to date.
        self.sent = sent if is_others else None
        self._keep: Keep | None = None
        self._pending: Future[None] | None = None
        self._told: Sent | None = None
        self._writes = hooks.writes
        self._is_due = False  # whether the state may have other webhooks than the file

    def begin(self, keep: Keep) -> None:
        """From now on save each change of a webhook in the state before it takes effect, by calling `keep`."""
        self._keep = keep
        self._hooks.changing = self._change
        if self._by != ALONE or self._hooks.latest.version:
            self._is_due, self._writes = True, -1

    def _change(self) -> None:
        assert self._keep is not None, "only called after `begin`"
        try:
            self._keep(KeepHooks(self._hooks.kept(self._by))).result()
        except BaseException:
            self._is_due = True  # the wait failed, but the batch may still be saved: write again
            raise

    def tell(self, seen: int) -> None:
        """Save the delivery progress if it has changed, without waiting for the save; `seen` is the last examined
        event."""
        if self._keep is None or not self._is_idle():
            return
        with self._hooks.lock:  # otherwise an older copy could be saved after a newer one
            self._tell(self._keep, seen)

    def _tell(self, keep: Keep, seen: int) -> None:
        due: list[Save] = []
        if self._is_due:
            self._is_due = False
            due.append(KeepHooks(self._hooks.kept(self._by)))
        if self._writes != self._hooks.writes:
            self._writes = self._hooks.writes
            sent = self._hooks.sent(self._by, seen)
            due += [KeepSent(sent)] if sent != self._told else []
            self._told = sent
        if due:
            self._pending = keep(*due)

    def _is_idle(self) -> bool:
        """Return whether no save is in progress; a failed save, for example on a full disk, is repeated."""
        if self._pending is None or not self._pending.done():
            return self._pending is None
        failed, self._pending = self._pending.exception(), None
        if failed is not None:
            self._is_due, self._told, self._writes = True, None, -1
        return True
