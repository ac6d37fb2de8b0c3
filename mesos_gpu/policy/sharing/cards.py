"""Choice of the cards of one node for a task with shares, and the number of tasks that fit on them. Pure.

A card that is open to shares is already held in Mesos, for all its shares. Any other card must be opened first, which
takes a GPU of an offer.
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
    """Shares that one task requests.

    Attributes:
        request: Share of each card.
        count: Number of cards.
        user: User as which the task runs; None if not known.
        compute_milli: Thousandths of a card's compute that all its shares together may have.
    """

    request: ShareRequest
    count: int
    user: str | None = None
    compute_milli: int = WHOLE


@dataclass(frozen=True, slots=True)
class Card:
    """Card on which a task would get a share.

    Attributes:
        gpu: The card's GPU.
        free: Free part of the card before the share.
        share: Share that the task would get.
        opens: Whether the card must first be opened to shares.
    """

    gpu: Gpu
    free: GpuPart
    share: Share
    opens: bool

    @property
    def free_milli(self) -> int:
        """Free thousandths of the card: of its compute or its memory, whichever is less."""
        capacity_mib = self.gpu.sharing.memory_mib if self.gpu.sharing else 0
        return min(self.free.milli, self.free.memory_mib * WHOLE // max(capacity_mib, 1))


Order = Callable[[Card], Any]  # sort key: the card with the lowest is taken first


def tightest(card: Card) -> tuple[object, ...]:
    """Return a sort key that prefers open cards, then the card with the least free."""
    return card.opens, card.free_milli, card.gpu.memory_mib, card.gpu.minor, card.gpu.id


def emptiest(card: Card) -> tuple[object, ...]:
    """Return a sort key that prefers the card with the most free, even if it must be opened."""
    return -card.free_milli, card.opens, card.gpu.memory_mib, card.gpu.minor, card.gpu.id


def cards_of(
    wish: Wish, groups: Iterable[Sequence[Gpu]], parts: Mapping[GpuId, GpuPart], *, even_full: bool = False
) -> list[list[Card]]:
    """Return the cards on which a task could get its shares, in groups from which it may take several.

    The cards of a group have one model; for a task with several cards they also give equal shares.

    Args:
        wish: Shares that the task requests.
        groups: GPUs, each group of one model.
        parts: Free parts of the GPUs that are open to shares.
        even_full: Whether to ignore the shares that are on the cards now.
    """
    by_kind: dict[tuple[str, Share | None], list[Card]] = {}
    for gpu in (gpu for group in groups for gpu in group):
        part = None if even_full else parts.get(gpu.id)
        share = choose(wish.request, gpu, part, wish.user, cards=wish.count, compute_milli=wish.compute_milli)
        if isinstance(share, Share):
            card = Card(gpu, part or unshared(gpu, wish.compute_milli), share, opens=gpu.id not in parts)
            by_kind.setdefault((gpu.model, share if wish.count > 1 else None), []).append(card)
    return [group for group in by_kind.values() if len(group) >= wish.count]


def could(wish: Wish, gpus: Iterable[Gpu]) -> bool:
    """Return whether GPUs of one model could give a task its shares if no share were on any of them.

    GPUs with equal sharing abilities are tested once, as most cards of a host are alike.
    """
    by_sharing: dict[Sharing | None, list[Gpu]] = {}
    for gpu in gpus:
        by_sharing.setdefault(gpu.sharing, []).append(gpu)
    counts = Counter[Share]()
    for members in by_sharing.values():
        share = choose(
            wish.request, members[0], None, wish.user, cards=wish.count, compute_milli=wish.compute_milli
        )
        if isinstance(share, Share):
            counts[share] += len(members)
    return max(counts.values(), default=0) >= wish.count


def least_opened(groups: Iterable[Collection[Card]], count: int) -> int | None:
    """Return the least number of cards that must be opened for one task; None if there are not enough cards."""
    return min((max(count - sum(not card.opens for card in group), 0) for group in groups), default=None)


def pick(
    groups: Iterable[Collection[Card]], count: int, most_opened: int, order: Order = tightest
) -> tuple[Card, ...] | None:
    """Choose the cards for one task; return None if there are too few.

    Args:
        groups: Groups of cards from which the task may take several.
        count: Number of cards.
        most_opened: Largest number of cards that may be opened to shares for it.
        order: Sort key of the cards; those with the lowest are taken.
    """
    sets = [_first(sorted(group, key=order), count, most_opened) for group in groups]
    able = [cards for cards in sets if cards is not None]
    return min(able, key=lambda cards: [order(card) for card in cards], default=None)


def _first(cards: Sequence[Card], count: int, most_opened: int) -> tuple[Card, ...] | None:
    """Take cards in order, at most `most_opened` of which must be opened; return None if there are too few."""
    taken: list[Card] = []
    for card in cards:
        if len(taken) < count and (most_opened > 0 or not card.opens):
            taken.append(card)
            most_opened -= card.opens
    return tuple(taken) if len(taken) == count else None


def tasks_on(wish: Wish, groups: Iterable[Collection[Card]], opened: int) -> int:
    """Return how many tasks with one card each have room if `opened` cards may be opened, the tightest first."""
    cards = sorted((card for group in groups for card in group), key=tightest)
    usable = [card for card in cards if not card.opens] + [card for card in cards if card.opens][:opened]
    return sum(
        times(
            wish.request,
            card.gpu,
            None if card.opens else card.free,
            wish.user,
            compute_milli=wish.compute_milli,
        )
        for card in usable
    )
