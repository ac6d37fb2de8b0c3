"""What belongs to a card and not to one of the tasks that share it: planned anew with each of them, undone after the
last. All of it is done in the card's turn (`Ledger.turn`)."""

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
    """The shares of a card, oldest first."""
    return tuple(h for h in ledger.holdings() if gpu in h.gpus and h.share is not None)


def plan(ledger: Ledger, gpus: Iterable[GpuId], idle: Collection[str] = ()) -> None:
    """Plan anew how the tasks of these cards take turns, as the ledger has them; a card whose tasks do not has no row.

    Args:
        ledger: Of this host.
        gpus: The cards.
        idle: Tasks that did not want their card of late: others get their time meanwhile.

    Raises:
        MesosGpuError, OSError: It cannot be written.
    """
    for gpu in gpus:
        for row in ledger.cards(gpu):
            if row.kind == WINDOWS:
                _plan(ledger, row, idle)


def _plan(ledger: Ledger, row: CardTrace, idle: Collection[str]) -> None:
    """Shorter windows are written before longer ones: nobody's time is given away before it is taken."""
    shares = [(TaskId(each.task), each.share) for each in sharers(ledger, row.gpu)]
    tenants = [windows.Tenant(task, share.compute_milli, task not in idle) for task, share in shares if share]
    planned = windows.plan(tenants, _own(row.state))
    state = json.dumps({task: astuple(window) for task, window in planned.own.items()})
    for task, window in sorted(planned.granted.items(), key=lambda item: item[1].length_us):
        region = region_of(ledger.directory, task)
        try:
            if any(card.gpu == row.gpu and card.window != window for card in region.limits((row.gpu,))):
                region.change(row.gpu, window=window)
        except (Damaged, FileNotFoundError) as error:
            if region.limits_path.exists():  # else it is being made, or removed
                why = error.what if isinstance(error, Damaged) else str(error)
                ledger.note(CardTrace(row.gpu, CLOSED, why))
    if state != row.state:  # last: what is noted is done
        ledger.note(replace(row, state=state))


def _own(state: str) -> dict[TaskId, windows.Window]:
    return {TaskId(task): windows.Window(*window) for task, window in json.loads(state or "{}").items()}


def clear(ledger: Ledger, gpus: Sequence[GpuId]) -> None:
    """Undo what was made of cards that nobody shares any more, and is in the way of another use of them.

    Raises:
        MesosGpuError, OSError: It cannot be undone; it stays on record.
    """
    with ledger.turn(gpus):
        settle(ledger, [gpu for gpu in gpus if not sharers(ledger, gpu)])


def settle(ledger: Ledger, gpus: Iterable[GpuId]) -> None:
    """After a release: plan anew for the shares that are left; without any, undo what was made of the card.

    Raises:
        MesosGpuError, OSError: It cannot be; it stays on record.
    """
    for gpu in gpus:
        shares, rows = sharers(ledger, gpu), ledger.cards(gpu)
        if any(row.kind == INSTANCE for row in rows):
            from isolator.shares.driver.instances import sweep

            sweep(ledger, gpu, {each.share.instance for each in shares if each.share is not None})
        if shares:
            plan(ledger, [gpu])
            continue
        for trace in reversed(ledger.cards(gpu) if rows else ()):
            undo(trace)
            ledger.forget(trace)


def tend(ledger: Ledger) -> None:
    """Do what whoever was to do it died before: undo what is left of cards that nobody shares any more, plan anew for
    those that are left on others. For the monitor."""
    for gpu in dict.fromkeys(trace.gpu for trace in ledger.cards()):
        try:
            if not _is_settled(ledger, gpu):
                with ledger.turn([gpu], timeout_s=0.0):
                    settle(ledger, [gpu])
        except Exception as error:  # whatever it is: the other cards are set right all the same
            import logging  # the executor has none

            logging.getLogger(__name__).error(
                "what was made of %s for its shares cannot be set right: %s",
                gpu,
                error,
                exc_info=not isinstance(error, MesosGpuError | OSError),
            )


def _is_settled(ledger: Ledger, gpu: GpuId) -> bool:
    """Whether a card has shares, its plan is of just these, and each instance that was made is one's."""
    shares = {holding.task: holding.share for holding in sharers(ledger, gpu)}
    held = {share.instance for share in shares.values() if share is not None}
    rows = ledger.cards(gpu)
    planned = all(_own(row.state).keys() == shares.keys() for row in rows if row.kind == WINDOWS)
    return bool(shares) and planned and all(row.what in held for row in rows if row.kind == INSTANCE)


def undo(trace: CardTrace) -> None:
    """Undo what a row of a card names; harmless if it was never made, or is gone.

    Raises:
        MesosGpuError, OSError: It cannot be undone.
    """
    if trace.kind in (CLOSED, WINDOWS):  # words; and a plan, which is in the files of its tasks
        return
    from isolator.shares.mps import daemon as mps  # an executor without it need not pay for it

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
