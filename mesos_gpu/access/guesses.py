"""How wrong proofs slow down who sends them: pure; the time is an argument.

After a few wrong ones an address waits, twice as long after each further one; so does a name for which they were, from
whatever address, but not as long, or somebody else could keep its owner out. Who has been right from an address does
not wait there for what others do with the name.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mesos_gpu.access.proofs import MOST_NAME
from mesos_gpu.access.rate import network_of

FREE: Final = 5  # wrong ones without a wait: people mistype
FIRST_S: Final = 1.0
MOST_ADDRESS_S: Final = 300.0
MOST_NAME_S: Final = 30.0
FORGET_S: Final = 900.0  # without a wrong one
KNOWN_S: Final = 30 * 86400.0  # that an address is remembered from which a name was right
MOST_KEPT: Final = 10_000  # addresses, names, and pairs of the two that were right

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Wrong:
    """Wrong proofs of an address or for a name. Times: seconds since the epoch."""

    count: int = 0
    at: float = 0.0
    until: float = 0.0


class _Kept(Generic[K]):
    """The latest `MOST_KEPT`; who waits longest is forgotten last."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._each: OrderedDict[K, _Wrong] = OrderedDict()

    def wait_s(self, key: K, now: float) -> float:
        wrong = self._each.get(key)
        return 0.0 if wrong is None else max(0.0, wrong.until - now)

    def add(self, key: K, now: float) -> None:
        wrong = self._each.pop(key, None)
        if wrong is None or now - max(wrong.at, wrong.until) > FORGET_S:
            wrong = _Wrong()
        wrong.count, wrong.at = wrong.count + 1, now
        if wrong.count > FREE:
            wrong.until = now + min(FIRST_S * 2.0 ** min(wrong.count - FREE - 1, 30), self._most_s)
        self._each[key] = wrong
        if len(self._each) > MOST_KEPT:
            self._forget_one(now)

    def forget(self, key: K) -> None:
        self._each.pop(key, None)

    def _forget_one(self, now: float) -> None:
        """Forget, of the oldest few, the one that waits least: new keys cannot wash out at once who waits."""
        oldest = [key for key, _ in zip(self._each, range(16), strict=False)]
        del self._each[min(oldest, key=lambda key: max(0.0, self._each[key].until - now))]

    def __len__(self) -> int:
        return len(self._each)


class Guesses:
    """What is remembered of wrong proofs. Not for several threads at once."""

    def __init__(self) -> None:
        """Nothing was wrong yet."""
        self._addresses: _Kept[str] = _Kept(MOST_ADDRESS_S)
        self._names: _Kept[str] = _Kept(MOST_NAME_S)
        self._right: OrderedDict[tuple[str, str], float] = OrderedDict()

    def wait_s(self, address: str, name: str, now: float) -> float:
        """How long a further guess has to wait; 0: it may be looked at."""
        address, name = network_of(address), name[:MOST_NAME]
        if self._was_right(address, name, now):
            return 0.0
        return max(self._addresses.wait_s(address, now), self._names.wait_s(name, now) if name else 0.0)

    def wrong(self, address: str, name: str, now: float) -> float:
        """Count a wrong one; how long the next one has to wait."""
        address, name = network_of(address), name[:MOST_NAME]
        self._addresses.add(address, now)
        if name:
            self._names.add(name, now)
        if self._was_right(address, name, now) and self._addresses.wait_s(address, now):
            del self._right[address, name]  # it guesses now: no better than others
        return self.wait_s(address, name, now)

    def right(self, address: str, name: str, now: float) -> None:
        """Remember that it was right; what was wrong before is forgotten for the name, and not for the address: one
        that has a name of its own could clear itself by it, again and again."""
        key = network_of(address), name[:MOST_NAME]
        self._names.forget(key[1])
        self._right.pop(key, None)
        self._right[key] = now
        if len(self._right) > MOST_KEPT:
            self._right.popitem(last=False)

    def __len__(self) -> int:
        """How much is kept."""
        return len(self._addresses) + len(self._names) + len(self._right)

    def _was_right(self, address: str, name: str, now: float) -> bool:
        at = self._right.get((address, name))
        return at is not None and now - at < KNOWN_S
