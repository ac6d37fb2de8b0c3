"""Which users jobs may run as."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Whose members are root of their host by what the group gives: an engine's socket, disks, memory, sudo.
MIGHTY_GROUPS: Final = frozenset(
    {"root", "wheel", "sudo", "admin", "docker", "lxd", "incus", "incus-admin", "libvirt", "disk", "kmem", "shadow"}
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")  # useradd(8)
_RANGE: Final = re.compile(r"(\d{1,10})-(\d{0,10})", re.ASCII)
_LAST: Final = 2**32 - 2  # (uid_t) -1 is none


@dataclass(frozen=True, slots=True)
class Account:
    """A user as a host knows it."""

    name: str
    uid: int
    groups: frozenset[str] = frozenset()  # names of all that it is in

    @property
    def mighty(self) -> str:
        """Why whoever runs as it has root's rights; "": nothing says so."""
        groups = sorted(self.groups & MIGHTY_GROUPS)
        return f"{self.name} is in the group {groups[0]}, whose members can become root" if groups else ""


@dataclass(frozen=True, slots=True)
class Users:
    """A list of names and of ranges of uids, ends included."""

    names: frozenset[str] = frozenset()
    ranges: tuple[tuple[int, int], ...] = ((1000, _LAST),)

    @classmethod
    def parse(cls, text: str) -> "Users":
        """`alice,bob,2000-2999,5000-`; "": uids from 1000.

        Raises:
            ValueError: It is something else; names the word.
        """
        names, ranges = set(), []
        for word in text.split(",") if text else ():
            if bounds := _RANGE.fullmatch(word):
                first, last = int(bounds[1]), int(bounds[2] or _LAST)
                if not 0 < first <= last <= _LAST:
                    raise ValueError(f"{word!r} must go from 1 at least to {_LAST} at most, the lower first")
                ranges.append((first, last))
            elif _NAME.fullmatch(word) and word != "root":
                names.add(word)
            else:
                raise ValueError(
                    f"{word!r} is neither a user's name (but root) nor uids, as 1000-1999 or 1000-"
                )
        return cls(frozenset(names), tuple(ranges)) if text else cls()

    def __str__(self) -> str:
        """Write the users as an operator does."""
        ranges = (f"{first}-{'' if last == _LAST else last}" for first, last in self.ranges)
        return ",".join((*sorted(self.names), *ranges))

    def may_have(self, name: str, uid: int | None) -> bool:
        """Whether it names that user; one whose uid is not known may be in a range."""
        if name in self.names:
            return True
        return bool(self.ranges) if uid is None else any(a <= uid <= b for a, b in self.ranges)


def nobody_known(_name: str) -> Account | None:
    """Accounts of a host that knows none."""
    return None


Accounts = Callable[[str], Account | None]  # by name; None: this host has no such user
