"""How wrong proofs slow down who sends them: pure; the time is an argument.

After a few wrong ones an address waits, twice as long after each further one; so does a name for which they were, from
whatever address, but not as long. Who has been right from an address does not wait there for what others do with the
name.

While a name waits, an address that has not guessed at it lately gets a turn: one turn per name and `TURN_S`, in the
order in which addresses asked. So the owner of a name, from an address that is new, waits for at most one turn of each
other address, and not until all others are silent. For turns, all addresses of an IPv6 site are one: who has a site has
65,536 networks, and would take the turns of a day.

Upper bound of the guesses at one name that are checked in a day, for N addresses: 86,400 / `TURN_S` turns, but at most
`TURNS` * N in a `TURNS_S`; 86,400 / `MAX_NAME_S` guesses without a turn; `FREE` + 1 guesses from each address from
which the name was right.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mesos_gpu.access.proofs import MAX_NAME
from mesos_gpu.access.rate import network_of, site_of

FREE: Final = 5  # wrong ones without a wait: people mistype
FIRST_S: Final = 1.0
MAX_ADDRESS_S: Final = 300.0
MAX_NAME_S: Final = 30.0
FORGET_S: Final = 900.0  # without a wrong one
TURN_S: Final = 1.0  # seconds between two turns of one name
TURNS: Final = 5  # turns of an address at a name in a `TURNS_S`, because people mistype
TURNS_S: Final = 86400.0
USE_S: Final = 120.0  # seconds after which an unused turn expires
KNOWN_S: Final = 30 * 86400.0  # that an address is remembered from which a name was right
MAX_KEPT: Final = 10_000  # addresses, names, and pairs of the two that were right

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Wrong:
    """Wrong proofs of an address or for a name. Times: seconds since the epoch."""

    count: int = 0
    at: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class _Turns:
    """Turns of an address, or of an IPv6 site, at a name."""

    since: float  # time of the first turn in the current `TURNS_S`
    count: int = 0
    at: float = 0.0  # begin of the latest turn
    is_used: bool = True


class _Kept(Generic[K]):
    """The latest `MAX_KEPT`; who waits longest is forgotten last."""

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
        if len(self._each) > MAX_KEPT:
            self._forget_one(now)

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
        self._addresses: _Kept[str] = _Kept(MAX_ADDRESS_S)
        self._names: _Kept[str] = _Kept(MAX_NAME_S)
        self._right: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._turns: OrderedDict[tuple[str, str], _Turns] = OrderedDict()
        self._next: OrderedDict[str, float] = OrderedDict()  # by name, the earliest begin of the next turn

    def wait_s(self, address: str, name: str, now: float) -> float:
        """How long a further guess has to wait; 0: it may be looked at."""
        address, name = network_of(address), name[:MAX_NAME]
        if self._was_right(address, name, now):
            return 0.0
        of_name = self._names.wait_s(name, now) if name else 0.0
        turn = self._turns.get((site_of(address), name))
        if of_name and turn is not None and not turn.is_used and now < turn.at + USE_S:
            of_name = min(of_name, max(0.0, turn.at - now))
        return max(self._addresses.wait_s(address, now), of_name)

    def ask(self, address: str, name: str, now: float) -> float:
        """Return the seconds that a guess at a name has to wait, as `wait_s`; give the address a turn if it may have
        one."""
        key = site_of(address), name[:MAX_NAME]
        waits = self._addresses.wait_s(network_of(address), now)
        if not name or waits or not self.wait_s(address, name, now):
            return self.wait_s(address, name, now)
        turn = self._turns.pop(key, None)
        if turn is None or now - turn.since >= TURNS_S:
            turn = _Turns(now)
        if turn.count < TURNS and (turn.is_used or now >= turn.at + USE_S):
            turn.at = max(now, self._next.pop(key[1], now))
            turn.count, turn.is_used = turn.count + 1, False
            self._next[key[1]] = turn.at + TURN_S
        self._turns[key] = turn
        for each in (self._turns, self._next):
            if len(each) > MAX_KEPT:
                each.popitem(last=False)
        return self.wait_s(address, name, now)

    def look(self, address: str, name: str, now: float) -> float:
        """Return the seconds that a guess has to wait, as `wait_s`; 0 if it is checked now, which uses its turn."""
        wait_s = self.wait_s(address, name, now)
        turn = self._turns.get((site_of(address), name[:MAX_NAME]))
        if not wait_s and turn is not None:
            turn.is_used = True
        return wait_s

    def wrong(self, address: str, name: str, now: float) -> float:
        """Count a wrong one; how long the next one has to wait."""
        address, name = network_of(address), name[:MAX_NAME]
        self._addresses.add(address, now)
        if name:
            self._names.add(name, now)
        if self._was_right(address, name, now) and self._addresses.wait_s(address, now):
            del self._right[address, name]  # it guesses now: no better than others
        return self.wait_s(address, name, now)

    def right(self, address: str, name: str, now: float) -> None:
        """Remember that a proof was right.

        Earlier wrong proofs still count. Otherwise an address could clear itself with a name of its own, and guesses
        at a name would be free while its owner sends right proofs.
        """
        key = network_of(address), name[:MAX_NAME]
        self._right.pop(key, None)
        self._right[key] = now
        if len(self._right) > MAX_KEPT:
            self._right.popitem(last=False)

    def __len__(self) -> int:
        """How much is kept."""
        kept = len(self._addresses) + len(self._names) + len(self._right)
        return kept + len(self._turns) + len(self._next)

    def _was_right(self, address: str, name: str, now: float) -> bool:
        at = self._right.get((address, name))
        return at is not None and now - at < KNOWN_S
