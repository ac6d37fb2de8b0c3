"""What belongs to a card and not to one of the tasks that share it: planned anew with each of them, undone after the
last. All of it is done in the card's turn (`Ledger.turn`)."""

from collections.abc import Iterable, Sequence

from isolator.gpus.ledger import CLOSED, CardTrace, Holding, Ledger
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.ids import GpuId


def sharers(ledger: Ledger, gpu: GpuId) -> tuple[Holding, ...]:
    """The shares of a card, oldest first."""
    return tuple(h for h in ledger.holdings() if gpu in h.gpus and h.share is not None)


def plan(ledger: Ledger, gpus: Iterable[GpuId]) -> None:
    """Plan anew how the tasks of these cards take turns, as the ledger has them.

    Raises:
        MesosGpuError, OSError: It cannot be written.
    """


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
        if sharers(ledger, gpu):
            plan(ledger, [gpu])
            continue
        for trace in reversed(ledger.cards(gpu)):
            undo(trace)
            ledger.forget(trace)


def tend(ledger: Ledger) -> None:
    """Undo what is left of cards that nobody shares any more: whoever was to do it died before. For the monitor."""
    for gpu in dict.fromkeys(trace.gpu for trace in ledger.cards()):
        try:
            with ledger.turn([gpu], timeout_s=0.0):
                if not sharers(ledger, gpu):
                    settle(ledger, [gpu])
        except (MesosGpuError, OSError) as error:
            import logging  # the executor has none

            logging.getLogger(__name__).error(
                "what was made of %s for its shares cannot be undone: %s", gpu, error
            )


def undo(trace: CardTrace) -> None:
    """Undo what a row of a card names; harmless if it was never made, or is gone.

    Raises:
        MesosGpuError, OSError: It cannot be undone.
    """
    if trace.kind == CLOSED:
        return
    raise BadConfiguration(
        f"the ledger has a row of {trace.gpu} of an unknown kind, {trace.kind}",
        remedy="run the mesos_gpu that wrote it",
    )
