"""State of a shared card that belongs to no single task: turns, MIG instances, the MPS daemon.

It is planned again whenever a share begins or ends, and undone after the last one. All functions but `tend`
and `clear` are called in the card's turn (`Ledger.turn`).
"""

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, replace

from isolator.gpus.ledger import Holding, Ledger
from isolator.gpus.share_claims import CLOSED, CardTrace
from isolator.shares.files import WINDOWS
from isolator.shares.shim.region import region_of
from isolator.shares.tenancy import INSTANCE
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.policy.sharing import windows


def sharers(ledger: Ledger, gpu: GpuId) -> tuple[Holding, ...]:
    """Return the holdings that have a share of a card, oldest first."""
    return tuple(h for h in ledger.holdings() if gpu in h.gpus and h.share is not None)


def plan(ledger: Ledger, gpus: Iterable[GpuId], idle: Collection[str] = ()) -> None:
    """Replan when each task may compute, on those of the cards whose tasks take turns (row `WINDOWS` in the ledger).

    Args:
        ledger: The ledger of this host.
        gpus: Cards to plan for.
        idle: Tasks that did not use their card lately; their time goes to the other tasks until they do.

    Raises:
        MesosGpuError, OSError: The plan cannot be written.
    """
    for gpu in gpus:
        for row in ledger.cards(gpu):
            if row.kind == WINDOWS:
                _plan(ledger, row, idle)


def _plan(ledger: Ledger, row: CardTrace, idle: Collection[str]) -> None:
    """Write the windows of one card, shorter ones first: no time is given to a task before it is taken from
    another.
    """
    shares = [(TaskId(holding.task), holding.share) for holding in sharers(ledger, row.gpu)]
    tenants = [windows.Tenant(task, share.compute_milli, task not in idle) for task, share in shares if share]
    planned = windows.plan(tenants, _own(row.state))
    state = json.dumps({task: astuple(window) for task, window in planned.own.items()})
    for task, window in sorted(planned.granted.items(), key=lambda item: item[1].length_us):
        region = region_of(ledger.directory, task)
        try:
            if any(card.gpu == row.gpu and card.window != window for card in region.limits((row.gpu,))):
                region.change(row.gpu, window=window)
        except (Damaged, FileNotFoundError) as error:
            if region.limits_path.exists():  # else the region is being made or removed
                why = error.what if isinstance(error, Damaged) else str(error)
                ledger.note(CardTrace(row.gpu, CLOSED, why))
    if state != row.state:  # last, so that a noted plan has been carried out
        ledger.note(replace(row, state=state))


def _own(state: str) -> dict[TaskId, windows.Window]:
    return {TaskId(task): windows.Window(*window) for task, window in json.loads(state or "{}").items()}


def clear(ledger: Ledger, gpus: Sequence[GpuId]) -> None:
    """Undo what was made of cards that no task shares any more, so that they can be used otherwise.

    Raises:
        MesosGpuError, OSError: Something cannot be undone; it stays in the ledger.
    """
    with ledger.turn(gpus):
        settle(ledger, [gpu for gpu in gpus if not sharers(ledger, gpu)])


def settle(ledger: Ledger, gpus: Iterable[GpuId]) -> None:
    """Plan again for the shares that are left on each card after a release; undo what was made of cards
    without any.

    Raises:
        MesosGpuError, OSError: Something cannot be changed; it stays in the ledger.
    """
    for gpu in gpus:
        shares, rows = sharers(ledger, gpu), ledger.cards(gpu)
        if any(row.kind == INSTANCE for row in rows):
            from isolator.shares.driver.instances import sweep

            sweep(ledger, gpu, {holding.share.instance for holding in shares if holding.share is not None})
        if shares:
            plan(ledger, [gpu])
            continue
        for trace in reversed(ledger.cards(gpu) if rows else ()):
            undo(trace)
            ledger.forget(trace)


def tend(ledger: Ledger) -> None:
    """Settle all cards whose last change was not completed, for example by an executor that was killed. For
    the monitor.
    """
    for gpu in dict.fromkeys(trace.gpu for trace in ledger.cards()):
        try:
            if not _is_settled(ledger, gpu):
                with ledger.turn([gpu], timeout_s=0.0):
                    settle(ledger, [gpu])
        except Exception as error:  # an error of any kind must not keep other cards from being settled
            import logging  # imported here, as executors use no logging

            logging.getLogger(__name__).error(
                "cannot clean up the sharing of %s (retried at the next look): %s",
                gpu,
                error,
                exc_info=not isinstance(error, MesosGpuError | OSError),
            )


def _is_settled(ledger: Ledger, gpu: GpuId) -> bool:
    """Return whether a card has shares, its plan is for exactly these, and each instance made for shares is
    in use.
    """
    shares = {holding.task: holding.share for holding in sharers(ledger, gpu)}
    held = {share.instance for share in shares.values() if share is not None}
    rows = ledger.cards(gpu)
    planned = all(_own(row.state).keys() == shares.keys() for row in rows if row.kind == WINDOWS)
    return bool(shares) and planned and all(row.what in held for row in rows if row.kind == INSTANCE)


def undo(trace: CardTrace) -> None:
    """Undo what a ledger row of a card names; harmless if that was never made, or is gone.

    Raises:
        MesosGpuError, OSError: It cannot be undone.
    """
    if trace.kind in (CLOSED, WINDOWS):  # a message, and a plan that is in its tasks' files: nothing to undo
        return
    from isolator.shares.mps import daemon as mps  # deferred: executors without MPS need not load it

    if trace.kind == mps.KIND:
        if left := mps.undo(mps.host_of(os.environ), trace.what):
            raise Unavailable(
                f"processes {left} of the MPS daemon of {trace.gpu} would not die",
                remedy="it is tried again; if they stay, reboot the host",
            )
        return
    raise BadConfiguration(
        f"the ledger has a row of {trace.gpu} of an unknown kind, {trace.kind}",
        remedy="run the mesos_gpu that wrote it",
    )
