"""Dominant-resource fair shares of queues, where CPUs and memory count beside GPUs. Pure, whole numbers only.

The dominant resource of a queue is the one of which it takes the largest part of the pool. All siblings are raised
together, by weight, until a resource is used up. From then on the demand that needs this resource stays as it is, and
all other demand is raised further. So a queue with jobs that need only CPUs is not held back by a lack of GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.policy.tenancy.filling import shrink
from mesos_gpu.policy.tenancy.share import Branch, Share, weights_of

Amounts = tuple[int, int, int]  # thousandths of cost, thousandths of CPUs, MiB of memory
NOTHING: Final[Amounts] = (0, 0, 0)
GPUS: Final = 1  # bit that stands for GPUs in the bit set of a demand (see Demand)
_RESOURCES: Final = (0, 1, 2)
_WHOLE: Final = 1 << 64  # fixed-point 1: the whole of a demand
_CLOSE: Final = 8  # bits: a guess beside an end lies 2**-8 of the interval away from it

#: Requested amounts by kind: a bit set of the resources that are needed together.
Demand = Mapping[int, Amounts]


@dataclass(frozen=True, slots=True)
class Party:
    """Queue in a division among its siblings.

    Attributes:
        weight: Weight against the others; with 0 it gets only what they leave.
        wants: Demand that is not met yet, by kind.
    """

    weight: int
    wants: Demand


def dominant_shares(
    root: Branch,
    pool: Amounts,
    demands: Mapping[str, Demand],
    uses: Mapping[str, int],
    history_percent: int = 0,
) -> dict[str, Share]:
    """Compute the fair share of each queue in a pool by dominant resources; amounts of a share are GPUs by cost.

    Args:
        root: Tree of queues; its demands and uses are ignored.
        pool: Capacity of the pool.
        demands: Amounts that leaves hold and that their jobs wait for, by kind.
        uses: Past use of queues, as in `share.Layout.dues`.
        history_percent: Influence of past use on the weights, as in `share.shares`.
    """
    wants: dict[str, dict[int, Amounts]] = {}
    _want(root, demands, wants)
    shares: dict[str, Share] = {}
    pending: list[tuple[Branch, Amounts]] = [(root, pool)]
    while pending:
        parent, given = pending.pop()
        children = sorted(parent.children, key=lambda child: child.path)
        for child, (share, due) in zip(
            children, _family(children, given, pool, wants, uses, history_percent), strict=True
        ):
            shares[child.path] = share
            if child.children:
                pending.append((child, due))
    return shares


def _want(branch: Branch, demands: Mapping[str, Demand], wants: dict[str, dict[int, Amounts]]) -> Demand:
    """Compute the demand of a queue and of all below it, within their limits, into `wants`."""
    for child in branch.children:
        _want(child, demands, wants)
    below = [wants[child.path] for child in branch.children]
    own = added(below) if branch.children else demands.get(branch.path, {})
    wants[branch.path] = capped(own, branch.limit)
    return wants[branch.path]


def _family(
    children: Sequence[Branch],
    given: Amounts,
    pool: Amounts,
    wants: Mapping[str, Demand],
    uses: Mapping[str, int],
    history_percent: int,
) -> list[tuple[Share, Amounts]]:
    """Divide the amount of one queue among its children: guarantees first, then the remainder, band by band.

    Returns:
        For each child its share, and the amounts of all resources that it gets.
    """
    use = [uses.get(child.path, 0) for child in children]
    gpus = [gpus_of(wants[child.path]) for child in children]
    floors = shrink(
        given[0], [min(want, child.guarantee) for want, child in zip(gpus, children, strict=True)], use
    )
    got = [part_of(wants[child.path], floor) for child, floor in zip(children, floors, strict=True)]
    rest = given
    for granted in got:
        rest = _minus(rest, total(granted))
    idle = [0 if child.lend_limit is None else max(0, child.guarantee - child.lend_limit - floor)
            for child, floor in zip(children, floors, strict=True)]  # fmt: skip
    idle_kept = shrink(max(0, rest[0]), idle, use)
    rest = max(0, rest[0] - sum(idle_kept)), max(0, rest[1]), max(0, rest[2])
    weights = [child.weight for child in children]
    if history_percent and any(use):  # children without demand and past use take no part
        active = [bool(wants[child.path]) or used for child, used in zip(children, use, strict=True)]
        weights = weights_of(
            [weight if is_active else 0 for weight, is_active in zip(weights, active, strict=True)],
            use,
            history_percent,
        )
    rests = [0] * len(children)
    for band in sorted({child.band for child in children}, reverse=True):
        parties = [
            Party(weights[i], without(_most(child, wants[child.path]), got[i]) if child.band == band else {})
            for i, child in enumerate(children)
        ]
        before = rest
        for i, more in enumerate(raised(rest, pool, parties)):
            if children[i].band == band:
                rests[i] = before[0]
            got[i] = added([got[i], more])
            rest = _minus(rest, total(more))
    return [
        (Share(child.path, given[0], floors[i], idle_kept[i], rests[i], weights[i], gpus_of(got[i]) - floors[i]),
         total(got[i]))
        for i, child in enumerate(children)
    ]  # fmt: skip


def _most(child: Branch, wants: Demand) -> dict[int, Amounts]:
    """Return the demand of a queue, limited to its guarantee and borrow limit."""
    return capped(wants, None if child.borrow_limit is None else child.guarantee + child.borrow_limit)


def kind_of(amounts: Amounts) -> int:
    """Return the kind of a request: a bit set of the resources that it needs."""
    return sum(1 << i for i in _RESOURCES if amounts[i])


def added(demands: Sequence[Demand]) -> dict[int, Amounts]:
    """Return the sum of several demands, kind by kind (a kind is a set of resources needed together)."""
    sums: dict[int, Amounts] = {}
    for demand in demands:
        for kind, amounts in demand.items():
            sums[kind] = plus(sums.get(kind, NOTHING), amounts)
    return sums


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of two amounts, resource by resource."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def part_of(demand: Demand, gpus: int) -> dict[int, Amounts]:
    """Return the part of a demand that takes `gpus` thousandths of cost, without the kinds that need no GPUs."""
    total = gpus_of(demand)
    return {kind: _scaled(amounts, gpus, total) for kind, amounts in demand.items() if kind & GPUS and gpus}


def without(demand: Demand, taken: Demand) -> dict[int, Amounts]:
    """Return a demand less the amounts of another one."""
    return {
        kind: (a - b[0], c - b[1], e - b[2])
        for kind, (a, c, e) in demand.items()
        for b in (taken.get(kind, NOTHING),)
    }


def gpus_of(demand: Demand) -> int:
    """Return the GPUs of a demand, in thousandths of cost."""
    return sum(gpus for gpus, _, _ in demand.values())


def capped(demand: Demand, gpus: int | None) -> dict[int, Amounts]:
    """Return a demand limited to `gpus` (None for no limit); all kinds that need GPUs are scaled down together."""
    total = gpus_of(demand)
    if gpus is None or total <= gpus:
        return dict(demand)
    return {
        kind: _scaled(amounts, gpus, total) if kind & GPUS else amounts for kind, amounts in demand.items()
    }


def raised(there: Amounts, pool: Amounts, parties: Sequence[Party]) -> list[dict[int, Amounts]]:
    """Divide the remaining amounts among siblings by dominant shares.

    Args:
        there: Amounts left to divide.
        pool: Capacity of the pool, of which parts are compared. CPUs or memory of 0 are unknown and not divided; a pool
            without GPUs gives no GPUs.
        parties: Siblings that divide the amounts.

    Returns:
        Amounts that each party gets, by kind: at most its demand, and together at most `there`.
    """
    demand = total(added([party.wants for party in parties]))
    if all(demand[i] <= there[i] or not _counts(i, pool) for i in _RESOURCES):
        return [dict(party.wants) for party in parties]
    if all(party.weight for party in parties):
        return _raised(there, pool, parties)
    first = _raised(there, pool, [party if party.weight else Party(1, {}) for party in parties])
    for got in first:
        there = _minus(there, total(got))
    last = _raised(
        there, pool, [Party(1, {}) if party.weight else Party(1, party.wants) for party in parties]
    )
    return [got if party.weight else more for party, got, more in zip(parties, first, last, strict=True)]


def total(demand: Demand) -> Amounts:
    """Return the amounts of a demand, summed over all kinds."""
    sums = NOTHING
    for amounts in demand.values():
        sums = plus(sums, amounts)
    return sums


def _raised(there: Amounts, pool: Amounts, parties: Sequence[Party]) -> list[dict[int, Amounts]]:
    """Raise parties with weights in steps; each step ends when a resource is used up."""
    got: list[dict[int, Amounts]] = [{} for _ in parties]
    gone = {i for i in _RESOURCES if _counts(i, pool) and not there[i]}
    while True:
        open_ = [_open(party.wants, granted, gone) for party, granted in zip(parties, got, strict=True)]
        rests, have = [total(demand) for demand in open_], [total(demand) for demand in got]
        if not any(map(any, rests)):
            return got
        counted = [i for i in _RESOURCES if pool[i] and i not in gone]
        division = division_of(pool, counted, parties, have, rests)
        level = division.highest(there)
        full = division.short(there, level)
        for granted, demand, part in zip(got, open_, division.parts(level), strict=True):
            for kind, amounts in demand.items():
                taken = _scaled(amounts, part, _WHOLE)
                granted[kind] = plus(granted.get(kind, NOTHING), taken)
                there = _minus(there, taken)
        if not full:
            return got
        gone |= full


def _counts(resource: int, pool: Amounts) -> bool:
    """Return whether a resource is limited in a pool; CPUs and memory of 0 are unknown."""
    return resource == 0 or pool[resource] > 0


def _open(wants: Demand, got: Demand, gone: set[int]) -> dict[int, Amounts]:
    """Return the unmet demand that needs none of the used-up resources `gone`."""
    closed = sum(1 << i for i in gone)
    return without({kind: amounts for kind, amounts in wants.items() if not kind & closed}, got)


@dataclass(frozen=True, slots=True)
class Division:
    """Raise of all siblings to a common level: dominant share divided by weight.

    Attributes:
        counted: Resources that are not used up.
        bits: Bits after the binary point of a level; one step of a level changes no party by a whole unit.
        terms: Triples per party, one for each counted resource that it wants: amount at level 1, amount that it has,
            unmet demand.
        rests: Unmet demand of each party.
    """

    counted: Sequence[int]
    bits: int
    terms: Sequence[Sequence[tuple[int, int, int]]]
    rests: Sequence[Amounts]

    def parts(self, level: int) -> list[int]:
        """Return the part of its unmet demand that each party takes so that no resource exceeds the level."""
        bits, parts = self.bits, []
        for terms in self.terms:
            part = _WHOLE
            for unit, have, rest in terms:
                allowed = (level * unit >> bits) - have
                if allowed < rest:
                    part = min(part, (allowed << 64) // rest if allowed > 0 else 0)
            parts.append(part)
        return parts

    def taken(self, level: int) -> Amounts:
        """Return the amounts that all parties together take at a level."""
        gpus = cpus = memory = 0
        for part, (a, b, c) in zip(self.parts(level), self.rests, strict=True):
            if part == _WHOLE:
                gpus, cpus, memory = gpus + a, cpus + b, memory + c
            elif part:
                gpus, cpus, memory = (
                    gpus + (a * part >> 64),
                    cpus + (b * part >> 64),
                    memory + (c * part >> 64),
                )
        return gpus, cpus, memory

    def highest(self, there: Amounts) -> int:
        """Return the highest level at which the resources suffice.

        The search keeps one level that is low enough and one that is too high. It tries the interpolated level, then
        one close to that end of the interval, and halves the interval when these do not narrow it enough.
        """
        ends = [((have + rest) << self.bits) // unit for terms in self.terms for unit, have, rest in terms]
        low, high = 0, 2 + max(ends, default=0)
        less, more = NOTHING, self.taken(high)
        if self._fits(more, there):
            return high
        turn, widest = 0, high
        while high - low > 1:
            level = self._guess(turn, low, high, less, more, there)
            taken = self.taken(level)
            is_low = self._fits(taken, there)
            low, less, high, more = (level, taken, high, more) if is_low else (low, less, level, taken)
            if turn == 0:
                turn = 1 if is_low else 2
            elif turn < 3 and (high - low) << 3 > widest:
                turn = 3
            else:
                turn, widest = 0, high - low
        return low

    def _guess(self, turn: int, low: int, high: int, less: Amounts, more: Amounts, there: Amounts) -> int:
        """Return the next level to try.

        `turn` is 0 to interpolate, 1 or 2 to stay close to the low or high end, and 3 for the middle.
        """
        width = high - low
        if turn == 0:
            full = [r for r in self.counted if more[r] > there[r]]
            level = low + min(width * (there[r] - less[r]) // (more[r] - less[r]) for r in full)
        else:
            level = (low + (width >> _CLOSE), high - (width >> _CLOSE), (low + high) >> 1)[turn - 1]
        return min(max(level, low + 1), high - 1)

    def _fits(self, taken: Amounts, there: Amounts) -> bool:
        """Return whether the counted resources suffice."""
        return all(taken[r] <= there[r] for r in self.counted)

    def short(self, there: Amounts, level: int) -> set[int]:
        """Return the resources that do not suffice above a level."""
        more = self.taken(level + 1)
        return {r for r in self.counted if more[r] > there[r]}


def division_of(
    pool: Amounts,
    counted: Sequence[int],
    parties: Sequence[Party],
    have: Sequence[Amounts],
    rests: Sequence[Amounts],
) -> Division:
    """Build one step of the division from what siblings have and still want.

    Args:
        pool: Capacity of the pool, of which parts are compared.
        counted: Resources that are not used up.
        parties: Siblings; only their weights are used.
        have: Amounts that each sibling has already.
        rests: Unmet demand of each sibling.
    """
    terms = [
        [(party.weight * pool[r], has[r], rest[r]) for r in counted if rest[r]]
        for party, has, rest in zip(parties, have, rests, strict=True)
    ]
    bits = max([unit for units in terms for unit, _, _ in units], default=1).bit_length()
    return Division(counted, bits, terms, rests)


def _scaled(amounts: Amounts, part: int, whole: int) -> Amounts:
    return amounts[0] * part // whole, amounts[1] * part // whole, amounts[2] * part // whole


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
