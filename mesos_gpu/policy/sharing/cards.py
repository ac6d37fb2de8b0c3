"""Which cards of one node a task gets its shares of, and how many tasks they are enough for. Pure.

An open card is held in Mesos already, for all its shares. Any other must be opened, which takes a GPU of an offer.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.sharing.methods import choose, times
from mesos_gpu.policy.sharing.parts import GpuPart, unshared


@dataclass(frozen=True, slots=True)
class Wish:
    """What one task asks for.

    Attributes:
        request: Of each card.
        count: How many cards.
        user: As whom it runs; None: not known.
        compute_milli: Thousandths of a card's compute that all its shares together may have.
    """

    request: ShareRequest
    count: int
    user: str | None = None
    compute_milli: int = WHOLE


@dataclass(frozen=True, slots=True)
class Card:
    """A card on which a task would be granted a share.

    Attributes:
        gpu: The card.
        free: What is free of it before.
        share: What the task is granted.
        opens: Whether it is to be opened for that.
    """

    gpu: Gpu
    free: GpuPart
    share: Share
    opens: bool

    @property
    def free_milli(self) -> int:
        """Thousandths that are free of it: of compute or of memory, whichever is less."""
        capacity_mib = self.gpu.sharing.memory_mib if self.gpu.sharing else 0
        return min(self.free.milli, self.free.memory_mib * WHOLE // max(capacity_mib, 1))


Order = Callable[[Card], Any]  # what is taken first has the least


def tightest(card: Card) -> tuple[object, ...]:
    """Open cards before others are opened, then the one with least free."""
    return card.opens, card.free_milli, card.gpu.memory_mib, card.gpu.minor, card.gpu.id


def emptiest(card: Card) -> tuple[object, ...]:
    """The card with most free, though it be opened for that."""
    return -card.free_milli, card.opens, card.gpu.memory_mib, card.gpu.minor, card.gpu.id


def cards_of(
    wish: Wish, groups: Iterable[Sequence[Gpu]], parts: Mapping[GpuId, GpuPart], *, even_full: bool = False
) -> list[list[Card]]:
    """The cards that would do, in groups of which a task may have several: all its shares are alike.

    Args:
        wish: What is asked for.
        groups: GPUs, each group of one model.
        parts: What is free of those that are open.
        even_full: As if no share were on any of them.
    """
    made: dict[tuple[str, Share | None], list[Card]] = {}
    for gpu in (gpu for group in groups for gpu in group):
        part = None if even_full else parts.get(gpu.id)
        share = choose(wish.request, gpu, part, wish.user, cards=wish.count, compute_milli=wish.compute_milli)
        if isinstance(share, Share):
            card = Card(gpu, part or unshared(gpu, wish.compute_milli), share, opens=gpu.id not in parts)
            made.setdefault((gpu.model, share if wish.count > 1 else None), []).append(card)
    return [group for group in made.values() if len(group) >= wish.count]


def could(wish: Wish, gpus: Iterable[Gpu]) -> bool:
    """Whether GPUs of one model would do if no share were on any of them. Most cards of a host are alike."""
    alike: dict[Sharing | None, list[Gpu]] = {}
    for gpu in gpus:
        alike.setdefault(gpu.sharing, []).append(gpu)
    counts = Counter[Share]()
    for some in alike.values():
        share = choose(
            wish.request, some[0], None, wish.user, cards=wish.count, compute_milli=wish.compute_milli
        )
        if isinstance(share, Share):
            counts[share] += len(some)
    return max(counts.values(), default=0) >= wish.count


def least_opened(groups: Iterable[Collection[Card]], count: int) -> int | None:
    """How many cards must be opened for one task at the least; None: there are not enough cards."""
    return min((max(count - sum(not card.opens for card in group), 0) for group in groups), default=None)


def pick(
    groups: Iterable[Collection[Card]], count: int, most_opened: int, order: Order = tightest
) -> tuple[Card, ...] | None:
    """The cards of one task, no more of them opened than may be; None: there are not enough."""
    sets = [_first(sorted(group, key=order), count, most_opened) for group in groups]
    able = [cards for cards in sets if cards is not None]
    return min(able, key=lambda cards: [order(card) for card in cards], default=None)


def _first(cards: Sequence[Card], count: int, most_opened: int) -> tuple[Card, ...] | None:
    taken: list[Card] = []
    for card in cards:
        if len(taken) < count and (most_opened > 0 or not card.opens):
            taken.append(card)
            most_opened -= card.opens
    return tuple(taken) if len(taken) == count else None


def tasks_on(wish: Wish, groups: Iterable[Collection[Card]], opened: int) -> int:
    """How many tasks that ask for one card have room one after the other, if so many cards may be opened for them,
    the tightest first."""
    cards = sorted((card for group in groups for card in group), key=tightest)
    some = [card for card in cards if not card.opens] + [card for card in cards if card.opens][:opened]
    return sum(
        times(
            wish.request,
            card.gpu,
            None if card.opens else card.free,
            wish.user,
            compute_milli=wish.compute_milli,
        )
        for card in some
    )
