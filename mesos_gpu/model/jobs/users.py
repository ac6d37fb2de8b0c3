"""Unix users that jobs may run as."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Groups whose members can become root of their host, by an engine's socket, disks, memory or sudo.
MIGHTY_GROUPS: Final = frozenset(
    {"root", "wheel", "sudo", "admin", "docker", "lxd", "incus", "incus-admin", "libvirt", "disk", "kmem", "shadow"}
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")  # useradd(8)
_RANGE: Final = re.compile(r"(\d{1,10})-(\d{0,10})", re.ASCII)
_LAST: Final = 2**32 - 2  # (uid_t) -1 is no uid


@dataclass(frozen=True, slots=True)
class Account:
    """A user account on a host."""

    name: str
    uid: int
    groups: frozenset[str] = frozenset()  # names of all groups of the user

    @property
    def mighty(self) -> str:
        """Reason why the user has the rights of root; "" if none is known."""
        groups = sorted(self.groups & MIGHTY_GROUPS)
        return f"{self.name} is in the group {groups[0]}, whose members can become root" if groups else ""


@dataclass(frozen=True, slots=True)
class Users:
    """A list of user names and of ranges of uids, ends included."""

    names: frozenset[str] = frozenset()
    ranges: tuple[tuple[int, int], ...] = ((1000, _LAST),)

    @classmethod
    def parse(cls, text: str) -> "Users":
        """Parse a list such as `alice,bob,2000-2999,5000-`; "" means uids from 1000.

        Raises:
            ValueError: The text has another form; the message names the wrong part.
        """
        names, ranges = set(), []
        for word in text.split(",") if text else ():
            if bounds := _RANGE.fullmatch(word):
                first, last = int(bounds[1]), int(bounds[2] or _LAST)
                if not 0 < first <= last <= _LAST:
                    raise ValueError(
                        f"{word!r} must be a range of uids from 1 to {_LAST}, the lower end first"
                    )
                ranges.append((first, last))
            elif _NAME.fullmatch(word) and word != "root":
                names.add(word)
            else:
                raise ValueError(
                    f"{word!r} is neither a user name other than root nor a range of uids (1000-1999 or 1000-)"
                )
        return cls(frozenset(names), tuple(ranges)) if text else cls()

    def __str__(self) -> str:
        """Return the list in the form of the operator's option."""
        ranges = (f"{first}-{'' if last == _LAST else last}" for first, last in self.ranges)
        return ",".join((*sorted(self.names), *ranges))

    def may_have(self, name: str, uid: int | None) -> bool:
        """Return whether the list contains a user; a user with unknown uid counts as within any range."""
        if name in self.names:
            return True
        return bool(self.ranges) if uid is None else any(a <= uid <= b for a, b in self.ranges)


def nobody_known(_name: str) -> Account | None:
    """Return None for every name, as on a host without accounts."""
    return None


Accounts = Callable[[str], Account | None]  # account by name; None if the host has no such user
