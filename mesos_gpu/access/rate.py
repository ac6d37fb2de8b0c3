"""How much one key may ask for: so many requests a second, and so many at once. The clock is an argument."""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

MOST_KEYS: Final = 10_000  # that are remembered; the one that was seen longest ago is forgotten first
_NETWORK_BITS: Final = 64  # of an IPv6 address: who has one has all of its network


@dataclass(frozen=True, slots=True)
class Limits:
    """What a name may ask for, or an address that no name is known of; 0: any.

    Attributes:
        rate_per_s: Requests in a second, in the long run.
        burst: Requests at once, after a pause.
        concurrency: Requests that are being answered.
        streams: Requests that wait for something to happen.
    """

    rate_per_s: float = 500.0
    burst: int = 5000
    concurrency: int = 64
    streams: int = 500


class Buckets:
    """A bucket of tokens for each key: it fills with `rate_per_s`, and holds `burst`."""

    def __init__(self, rate_per_s: float, burst: int, most_keys: int = MOST_KEYS) -> None:
        """All are full. `rate_per_s` 0: they never get empty."""
        self._rate_per_s, self._burst, self._most_keys = rate_per_s, float(max(burst, 1)), most_keys
        self._levels: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # tokens, and when there were so many

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._levels)

    def take(self, key: str, now: float) -> float:
        """Take a token. 0.0: there was one; else none is taken, and there is one in so many seconds."""
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
    """How many requests of each key are being answered. It remembers those alone."""

    def __init__(self, most: int, most_of_all: int = 0) -> None:
        """`most` of a key at once, `most_of_all` of all keys; 0: any."""
        self._most, self._most_of_all = most, most_of_all
        self._counts: dict[str, int] = {}
        self._all = 0

    def __len__(self) -> int:
        """How many keys have some."""
        return len(self._counts)

    def enter(self, key: str) -> bool:
        """Count one more, unless there are as many as there may be."""
        count = self._counts.get(key, 0)
        if (self._most and count >= self._most) or (self._most_of_all and self._all >= self._most_of_all):
            return False
        self._counts[key] = count + 1
        self._all += 1
        return True

    def leave(self, key: str) -> None:
        """Take back what `enter` counted."""
        self._all -= 1
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


def network_of(address: str) -> str:
    """What an address is counted as: itself, or of IPv6 the network; what is no address is as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
    return str(parsed)
