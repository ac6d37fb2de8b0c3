"""Order of users by their shares and their past use: Slurm's Fair Tree algorithm. Pure.

Siblings are compared by shares divided by use, both as parts of the siblings' totals. All users below the better
sibling come before all users below the worse one. Source: Slurm's page on its Fair Tree algorithm (fair_tree.html).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key


@dataclass(frozen=True, slots=True)
class Account:
    """Queue or, without children, user in the tree that ranks users.

    Attributes:
        name: Name, unique among users.
        shares: Weight against its siblings; not negative.
        use: Past use, decayed; a queue's includes everything below it.
        children: Accounts directly below.
    """

    name: str
    shares: int = 1
    use: int = 0
    children: tuple["Account", ...] = ()


def compare(left: Account, right: Account) -> int:
    """Compare two siblings: negative if the left one goes first, positive if the right one does, 0 if they are equal.

    Products are compared instead of quotients, so that a use of 0 needs no division.
    """
    if not left.shares or not right.shares:  # accounts without shares go last, and are equal
        return bool(right.shares) - bool(left.shares)
    if not left.use or not right.use:  # accounts without past use go first
        return bool(left.use) - bool(right.use)
    a, b = left.use * right.shares, right.use * left.shares
    return (a > b) - (a < b)


def ranks(root: Account) -> dict[str, int]:
    """Return the rank of each user, from 0.

    Equal users have the same rank; the next user's rank is the number of users before.
    """
    places: dict[str, int] = {}
    place = 0
    for users in _tiers(root.children):
        places |= dict.fromkeys((user.name for user in users), place)
        place += len(users)
    return places


def _tiers(siblings: Sequence[Account]) -> Iterator[list[Account]]:
    """Yield the users in order, equal ones together; the children of equal queues are compared as siblings."""
    for tied in _grouped(siblings):
        users = [account for account in tied if not account.children]
        if users:
            yield users
        below = [child for account in tied for child in account.children]
        if below:
            yield from _tiers(below)


def _grouped(siblings: Sequence[Account]) -> Iterator[list[Account]]:
    """Yield siblings in order, equal ones together."""
    group: list[Account] = []
    for account in sorted(siblings, key=cmp_to_key(compare)):
        if group and compare(group[0], account):
            yield group
            group = []
        group.append(account)
    if group:
        yield group


def start_of(shares: int, others: Sequence[tuple[int, int]]) -> int:
    """Return the past use that a new user of a queue starts with: it ranks equal to the user that goes first now.

    0 if no existing user has shares.

    Args:
        shares: Shares of the new user.
        others: Shares and past use of each existing user.
    """
    accounts = [Account("", own, use) for own, use in others if own]
    if not accounts:
        return 0
    first = min(accounts, key=cmp_to_key(compare))
    return first.use * shares // first.shares
