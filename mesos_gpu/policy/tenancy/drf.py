"""Dominant shares: what queues are due where processors and memory count beside GPUs. Pure, and in whole numbers.

Of the resources a queue takes, the one of which it takes the largest part of the pool is its dominant one. Siblings are
raised together, each by its weight, until a resource is used up. It is left out from then on: whoever needs it stays
where he is, and the rest of him, and of the others, is raised further. So a queue below which somebody needs
processors only is not held back by a lack of GPUs that he takes no part in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.policy.tenancy.filling import shrink
from mesos_gpu.policy.tenancy.share import Branch, Share, weights_of

Amounts = tuple[int, int, int]  # thousandths of cost, thousandths of CPUs, MiB of memory
NOTHING: Final[Amounts] = (0, 0, 0)
GPUS: Final = 1  # the bit of GPUs in a kind
_RESOURCES: Final = (0, 1, 2)
_WHOLE: Final = 1 << 64  # a part of a demand that is all of it
_CLOSE: Final = 8  # bits: of the levels in question, those beside the likely one that are looked at

#: What is asked for, by the resources that are needed together: a bit for each.
Demand = Mapping[int, Amounts]


@dataclass(frozen=True, slots=True)
class Party:
    """A queue beside its siblings.

    Attributes:
        weight: Its part, beside that of the others; 0: what nobody else wants.
        wants: What it could take yet, by kind.
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
    """What each queue is due of a pool's GPUs where all resources count; the amounts of a share are GPUs by cost.

    Args:
        root: The tree; its demands and uses are not looked at.
        pool: What the pool has.
        demands: Of leaves: what they hold and what they wait for, by kind.
        uses: Past use of queues, as of `share.Layout.dues`.
        history_percent: As of `share.shares`.
    """
    wants: dict[str, dict[int, Amounts]] = {}
    _want(root, demands, wants)
    shares: dict[str, Share] = {}
    line: list[tuple[Branch, Amounts]] = [(root, pool)]
    while line:
        parent, given = line.pop()
        children = sorted(parent.children, key=lambda child: child.path)
        for child, (share, due) in zip(
            children, _family(children, given, pool, wants, uses, history_percent), strict=True
        ):
            shares[child.path] = share
            if child.children:
                line.append((child, due))
    return shares


def _want(branch: Branch, demands: Mapping[str, Demand], wants: dict[str, dict[int, Amounts]]) -> Demand:
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
    """How one queue divides what it has: guarantees first, then what is left over, band by band."""
    use = [uses.get(child.path, 0) for child in children]
    gpus = [gpus_of(wants[child.path]) for child in children]
    floors = shrink(
        given[0], [min(want, child.guarantee) for want, child in zip(gpus, children, strict=True)], use
    )
    got = [part_of(wants[child.path], floor) for child, floor in zip(children, floors, strict=True)]
    rest = given
    for mine in got:
        rest = _minus(rest, total(mine))
    idle = [0 if child.lend_limit is None else max(0, child.guarantee - child.lend_limit - floor)
            for child, floor in zip(children, floors, strict=True)]  # fmt: skip
    kept = shrink(max(0, rest[0]), idle, use)
    rest = max(0, rest[0] - sum(kept)), max(0, rest[1]), max(0, rest[2])
    weights = [child.weight for child in children]
    if history_percent and any(use):  # who neither wants nor has used anything is no party to it
        there = [bool(wants[child.path]) or used for child, used in zip(children, use, strict=True)]
        weights = weights_of(
            [weight if each else 0 for weight, each in zip(weights, there, strict=True)], use, history_percent
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
        (Share(child.path, given[0], floors[i], kept[i], rests[i], weights[i], gpus_of(got[i]) - floors[i]),
         total(got[i]))
        for i, child in enumerate(children)
    ]  # fmt: skip


def _most(child: Branch, wants: Demand) -> dict[int, Amounts]:
    """What it takes at most, with what it may borrow."""
    return capped(wants, None if child.borrow_limit is None else child.guarantee + child.borrow_limit)


def kind_of(amounts: Amounts) -> int:
    """Which resources are needed together."""
    return sum(1 << i for i in _RESOURCES if amounts[i])


def added(demands: Sequence[Demand]) -> dict[int, Amounts]:
    """What several ask for together."""
    sums: dict[int, Amounts] = {}
    for demand in demands:
        for kind, amounts in demand.items():
            sums[kind] = plus(sums.get(kind, NOTHING), amounts)
    return sums


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum of each."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def part_of(demand: Demand, gpus: int) -> dict[int, Amounts]:
    """So much of what needs GPUs as takes that many, thousandths of cost."""
    total = gpus_of(demand)
    return {kind: _scaled(amounts, gpus, total) for kind, amounts in demand.items() if kind & GPUS and gpus}


def without(demand: Demand, taken: Demand) -> dict[int, Amounts]:
    """What is left of it."""
    return {
        kind: (a - b[0], c - b[1], e - b[2])
        for kind, (a, c, e) in demand.items()
        for b in (taken.get(kind, NOTHING),)
    }


def gpus_of(demand: Demand) -> int:
    """The GPUs in it."""
    return sum(gpus for gpus, _, _ in demand.values())


def capped(demand: Demand, gpus: int | None) -> dict[int, Amounts]:
    """A demand that takes so many GPUs at most; what needs them is scaled down together."""
    total = gpus_of(demand)
    if gpus is None or total <= gpus:
        return dict(demand)
    return {
        kind: _scaled(amounts, gpus, total) if kind & GPUS else amounts for kind, amounts in demand.items()
    }


def raised(there: Amounts, pool: Amounts, parties: Sequence[Party]) -> list[dict[int, Amounts]]:
    """Divide what there is by dominant shares.

    Args:
        there: What is left to be divided.
        pool: What the pool has: the whole of which parts are compared. CPUs or memory of 0 are unknown and not divided;
            a pool without GPUs gives no GPUs.
        parties: Who divides it.

    Returns:
        What each gets, by kind. Nobody gets more than he wants, and nothing is given that is not there.
    """
    wanted = total(added([party.wants for party in parties]))
    if all(wanted[i] <= there[i] or not _counts(i, pool) for i in _RESOURCES):
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
    """All of it together."""
    sums = NOTHING
    for amounts in demand.values():
        sums = plus(sums, amounts)
    return sums


def _raised(there: Amounts, pool: Amounts, parties: Sequence[Party]) -> list[dict[int, Amounts]]:
    got: list[dict[int, Amounts]] = [{} for _ in parties]
    gone = {i for i in _RESOURCES if _counts(i, pool) and not there[i]}
    while True:
        open_ = [_open(party.wants, mine, gone) for party, mine in zip(parties, got, strict=True)]
        rests, have = [total(each) for each in open_], [total(each) for each in got]
        if not any(map(any, rests)):
            return got
        counted = [i for i in _RESOURCES if pool[i] and i not in gone]
        division = division_of(pool, counted, parties, have, rests)
        level = division.highest(there)
        full = division.short(there, level)
        for mine, each, part in zip(got, open_, division.parts(level), strict=True):
            for kind, amounts in each.items():
                taken = _scaled(amounts, part, _WHOLE)
                mine[kind] = plus(mine.get(kind, NOTHING), taken)
                there = _minus(there, taken)
        if not full:
            return got
        gone |= full


def _counts(resource: int, pool: Amounts) -> bool:
    return resource == 0 or pool[resource] > 0


def _open(wants: Demand, got: Demand, gone: set[int]) -> dict[int, Amounts]:
    """What somebody could take yet, without anything that needs what is used up."""
    closed = sum(1 << i for i in gone)
    return without({kind: amounts for kind, amounts in wants.items() if not kind & closed}, got)


@dataclass(frozen=True, slots=True)
class Division:
    """A raise of siblings by one level.

    Attributes:
        counted: Resources that are not used up.
        bits: After the point of a level, a dominant share over a weight: with one more nobody takes a whole one more.
        terms: By party, of each of these that it wants: what a level of 1 is, what it has, and what it may take yet.
        rests: What each party may take yet.
    """

    counted: Sequence[int]
    bits: int
    terms: Sequence[Sequence[tuple[int, int, int]]]
    rests: Sequence[Amounts]

    def parts(self, level: int) -> list[int]:
        """Which part of its rest each takes when all are raised to a level: up to where no resource is more of the pool
        than the level allows."""
        bits, parts = self.bits, []
        for terms in self.terms:
            part = _WHOLE
            for unit, have, rest in terms:
                may = (level * unit >> bits) - have
                if may < rest:
                    part = min(part, (may << 64) // rest if may > 0 else 0)
            parts.append(part)
        return parts

    def taken(self, level: int) -> Amounts:
        """What all of them take then of each resource."""
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
        """The highest level for which there is enough.

        It is looked for between one that is low enough and one that is too high: where it would be if what is taken
        grew evenly between them, then close beside that, and in the middle where that did not help.
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
        """A level between two, as `highest` says. `turn`: 0: evenly; 1 and 2: close to the low or high one; 3: in the
        middle."""
        width = high - low
        if turn == 0:
            full = [r for r in self.counted if more[r] > there[r]]
            level = low + min(width * (there[r] - less[r]) // (more[r] - less[r]) for r in full)
        else:
            level = (low + (width >> _CLOSE), high - (width >> _CLOSE), (low + high) >> 1)[turn - 1]
        return min(max(level, low + 1), high - 1)

    def _fits(self, taken: Amounts, there: Amounts) -> bool:
        return all(taken[r] <= there[r] for r in self.counted)

    def short(self, there: Amounts, level: int) -> set[int]:
        """The resources for which there is not enough above a level."""
        more = self.taken(level + 1)
        return {r for r in self.counted if more[r] > there[r]}


def division_of(
    pool: Amounts,
    counted: Sequence[int],
    parties: Sequence[Party],
    have: Sequence[Amounts],
    rests: Sequence[Amounts],
) -> Division:
    """What siblings may take yet, beside what they have, of the resources that are not used up.

    Args:
        pool: The whole of which parts are compared.
        counted: Resources that are not used up.
        parties: Who divides; only weights are looked at.
        have: What each has already.
        rests: What each may take yet.
    """
    terms = [
        [(party.weight * pool[r], has[r], rest[r]) for r in counted if rest[r]]
        for party, has, rest in zip(parties, have, rests, strict=True)
    ]
    bits = max([unit for each in terms for unit, _, _ in each], default=1).bit_length()
    return Division(counted, bits, terms, rests)


def _scaled(amounts: Amounts, part: int, whole: int) -> Amounts:
    return amounts[0] * part // whole, amounts[1] * part // whole, amounts[2] * part // whole


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
