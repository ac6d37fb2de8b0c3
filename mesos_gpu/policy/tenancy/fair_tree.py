"""The order of users by what they were due and what they have used: Slurm's Fair Tree. Pure.

Siblings are compared by shares over use, as parts of what all siblings have. All users of the better one come before
all users of the worse, whatever is below. Source: Slurm's page on its Fair Tree algorithm (fair_tree.html).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key


@dataclass(frozen=True, slots=True)
class Account:
    """A queue or, without children, a user.

    Attributes:
        name: Of it, unique among users.
        shares: Its part, beside its siblings'; not negative.
        use: What it has used, decayed; of a queue, all that is below it.
        children: Those below it.
    """

    name: str
    shares: int = 1
    use: int = 0
    children: tuple["Account", ...] = ()


def compare(left: Account, right: Account) -> int:
    """Which of two siblings comes first: negative, the left one. Nobody's use is divided by: the products say it."""
    if not left.shares or not right.shares:  # who has no shares comes last, and equal to others without
        return bool(right.shares) - bool(left.shares)
    if not left.use or not right.use:  # who has used nothing comes first
        return bool(left.use) - bool(right.use)
    a, b = left.use * right.shares, right.use * left.shares
    return (a > b) - (a < b)


def ranks(root: Account) -> dict[str, int]:
    """The place of each user, from 0; equals share one, and those who follow them keep theirs."""
    places: dict[str, int] = {}
    place = 0
    for users in _tiers(root.children):
        places |= dict.fromkeys((user.name for user in users), place)
        place += len(users)
    return places


def _tiers(siblings: Sequence[Account]) -> Iterator[list[Account]]:
    """Users in their order, equals together. Queues that are equal are one: what is below them is compared as siblings
    are."""
    for tied in _grouped(siblings):
        users = [each for each in tied if not each.children]
        if users:
            yield users
        below = [child for each in tied for child in each.children]
        if below:
            yield from _tiers(below)


def _grouped(siblings: Sequence[Account]) -> Iterator[list[Account]]:
    group: list[Account] = []
    for each in sorted(siblings, key=cmp_to_key(compare)):
        if group and compare(group[0], each):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def start_of(shares: int, others: Sequence[tuple[int, int]]) -> int:
    """The use with which a new user of a queue begins: he stands beside the first of those who are there.

    Args:
        shares: His.
        others: Shares and use of each other user.
    """
    accounts = [Account("", each, use) for each, use in others if each]
    if not accounts:
        return 0
    first = min(accounts, key=cmp_to_key(compare))
    return first.use * shares // first.shares
