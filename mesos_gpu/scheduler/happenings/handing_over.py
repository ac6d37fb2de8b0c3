"""Webhooks and how far events were sent to them, kept in the state as well: whoever leads next goes on from there.

The file of webhooks belongs to one scheduler, and knows more: what is tried again when, and what was given up. A
scheduler that finds its own word in the state goes on with its file; else with what the state says.
"""

from collections.abc import Callable
from concurrent.futures import Future

from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.model.saves import KeepHooks, KeepSent, Save, Saved
from mesos_gpu.model.tasks.hook import Sent

Keep = Callable[..., Future[None]]  # of saves
ALONE = ""  # the name of a scheduler that is not one of several


class HandedOver:
    """What this scheduler has found in its state, and writes there. `tell` is for one thread; the rest for any."""

    def __init__(self, hooks: HookStore, saved: Saved, by: str = ALONE) -> None:
        """Take over the webhooks that another scheduler had. `by`: where this one is reached by the others.

        Raises:
            NoRoom: The disk is full.
        """
        self._hooks, self._by = hooks, by
        kept, sent = saved.hooks, saved.sent
        if kept and (kept.by not in (ALONE, by) or kept.version.version > hooks.latest.version):
            hooks.adopt(kept)
        is_others = sent is not None and sent.by != by and (sent.by != ALONE or hooks.seen() is None)
        #: How far another scheduler was; None: the file knows.
        self.sent = sent if is_others else None
        self._keep: Keep | None = None
        self._pending: Future[None] | None = None
        self._told: Sent | None = None
        self._writes = hooks.writes
        self._is_due = False  # whether the state may have other webhooks than the file

    def begin(self, keep: Keep) -> None:
        """From now on each change of a webhook is in the state before it holds. `keep`: saves with the next batch."""
        self._keep = keep
        self._hooks.changing = self._change
        if self._by != ALONE or self._hooks.latest.version:
            self._is_due, self._writes = True, -1

    def _change(self) -> None:
        assert self._keep is not None, "it is called from `begin` on"
        try:
            self._keep(KeepHooks(self._hooks.kept(self._by))).result()
        except BaseException:
            self._is_due = True  # it was refused here, and may be saved still
            raise

    def tell(self, seen: int) -> None:
        """Say how far events were sent, if it is more than was said; without waiting until it is saved. `seen`: the
        latest that was looked at."""
        if self._keep is None or not self._is_said():
            return
        with self._hooks.lock:  # else a change could be saved before what was read before it
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

    def _is_said(self) -> bool:
        """Whether nothing is on its way; what could not be saved, as on a full disk, is said once more."""
        if self._pending is None or not self._pending.done():
            return self._pending is None
        failed, self._pending = self._pending.exception(), None
        if failed is not None:
            self._is_due, self._told, self._writes = True, None, -1
        return True
