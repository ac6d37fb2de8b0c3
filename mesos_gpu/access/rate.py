"""Request limits per key: requests per second, and requests at once; the time is an argument."""

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

MAX_KEYS: Final = 10_000  # stored keys; the least recently used one is dropped first
_NETWORK_BITS: Final = 64  # prefix of an IPv6 address that one client controls
_SITE_BITS: Final = 48  # prefix of an IPv6 address that a subscriber may get (RFC 6177)
W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """Request limits of a name, or of an address without a proved name; 0 for no limit.

    Attributes:
        rate_per_s: Requests per second in the long run.
        burst: Requests at once, after a pause.
        concurrency: Requests in progress.
        streams: Requests that wait for events.
        unnamed_rate_per_s: Requests per second of one address without a proved name, if names are required.
        unnamed_burst: Requests of one address without a proved name at once, after a pause.
        connections: Open connections of one address on which the server waits for the client.
    """

    rate_per_s: float = 500.0
    burst: int = 5000
    concurrency: int = 64
    streams: int = 500
    unnamed_rate_per_s: float = 20.0
    unnamed_burst: int = 100
    connections: int = 100


class Buckets:
    """A token bucket for each key, which refills with `rate_per_s` up to `burst`.

    Args:
        rate_per_s: Tokens per second; 0 for no limit.
        burst: Capacity of a bucket.
        most_keys: Number of stored keys.
    """

    def __init__(self, rate_per_s: float, burst: int, most_keys: int = MAX_KEYS) -> None:
        self._rate_per_s, self._burst, self._most_keys = rate_per_s, float(max(burst, 1)), most_keys
        # Tokens, and the time of that count.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of stored keys."""
        return len(self._levels)

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0; or take none and return the seconds until there is one."""
        if not self._rate_per_s:
            return 0.0
        tokens, at = self._levels.pop(key, (self._burst, now))
        tokens = min(tokens + max(now - at, 0.0) * self._rate_per_s, self._burst)
        wait_s = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate_per_s
        self._levels[key] = (tokens if wait_s else tokens - 1.0), max(now, at)
        if len(self._levels) > self._most_keys:
            self._levels.popitem(last=False)
        return wait_s


class Tally:
    """Number of requests in progress by key.

    Args:
        most: Limit for one key; 0 for no limit.
        most_of_all: Limit for all keys together; 0 for no limit.
    """

    def __init__(self, most: int, most_of_all: int = 0) -> None:
        self._most, self._most_of_all = most, most_of_all
        self._counts: dict[str, int] = {}
        self._all = 0

    def __len__(self) -> int:
        """Return the number of keys with requests in progress."""
        return len(self._counts)

    def enter(self, key: str) -> bool:
        """Count one more request, and return True; return False at the limit."""
        count = self._counts.get(key, 0)
        if (self._most and count >= self._most) or (self._most_of_all and self._all >= self._most_of_all):
            return False
        self._counts[key] = count + 1
        self._all += 1
        return True

    def leave(self, key: str) -> None:
        """Subtract a request that `enter` has counted."""
        self._all -= 1
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


class Waiters(Generic[W]):
    """Waiting members of each key, in the order in which they began to wait.

    Each operation takes constant time: keys are grouped by their number of members, which changes by one at a time.
    """

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[W, None]] = {}
        self._keys: dict[int, OrderedDict[str, None]] = {}  # keys by their number of members
        self._largest = self._all = 0

    def __len__(self) -> int:
        """Return the number of members of all keys."""
        return self._all

    def count(self, key: str) -> int:
        """Return the number of members of a key."""
        return len(self._of.get(key, ()))

    def add(self, key: str, member: W) -> None:
        """Add a member; a member that waits already moves to the end."""
        members = self._of.setdefault(key, OrderedDict())
        if member in members:
            members.move_to_end(member)
            return
        members[member] = None
        self._all += 1
        self._move(key, len(members) - 1, len(members))

    def remove(self, key: str, member: W) -> None:
        """Remove a member, if it is there."""
        members = self._of.get(key)
        if members is None or member not in members:
            return
        del members[member]
        self._all -= 1
        self._move(key, len(members) + 1, len(members))
        if not members:
            del self._of[key]

    def oldest(self, key: str) -> W | None:
        """Return the member of a key that has waited longest; None if the key has no members."""
        return next(iter(self._of.get(key, ())), None)

    def oldest_of_largest(self) -> W | None:
        """Return the member that has waited longest, of the key with most members; None if nothing waits."""
        return self.oldest(next(iter(self._keys[self._largest]))) if self._largest else None

    def _move(self, key: str, before: int, after: int) -> None:
        """Move a key to the group of its new number of members, which differs from the previous number by one."""
        if after:
            self._keys.setdefault(after, OrderedDict())[key] = None
        if before:
            del self._keys[before][key]
            if not self._keys[before]:
                del self._keys[before]
        if after > self._largest or self._largest not in self._keys:
            self._largest = after


@lru_cache(4096)
def network_of(address: str) -> str:
    """Return the address or IPv6 network that an address is counted as; other texts are returned unchanged."""
    return _prefix_of(address, _NETWORK_BITS)


@lru_cache(4096)
def site_of(address: str) -> str:
    """Return the IPv6 site of an address or of a network from `network_of`; else the result of `network_of`."""
    return _prefix_of(address.partition("/")[0], _SITE_BITS)


def _prefix_of(address: str, bits: int) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, bits), strict=False))
    return str(parsed)
