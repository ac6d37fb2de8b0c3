"""Delays after wrong proofs, against guessing of passwords and tokens; pure, as the time is an argument.

After a few wrong proofs an address must wait, twice as long after each further one. A name for which proofs were wrong
must wait too, from any address, but less long. An address from which a name was proved does not wait for wrong proofs
that others send for the name.

While a name waits, an address that has not guessed at it lately gets a turn: one turn per name and `TURN_S`, in the
order of requests. So the owner of a name at a new address waits for at most one turn of each other address, and not
until all others stop. All addresses of an IPv6 site share turns, as a site has 65,536 networks, which could take all
turns of a day.

Upper bound of checked guesses at one name in a day, for N addresses: 86,400 / `TURN_S` turns, but at most
`TURNS` * N in a `TURNS_S`; 86,400 / `MAX_NAME_S` guesses without a turn; `FREE` + 1 guesses from each address from
which the name was right.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mesos_gpu.access.proofs import MAX_NAME
from mesos_gpu.access.rate import network_of, site_of

FREE: Final = 5  # wrong proofs without delay, as people mistype
FIRST_S: Final = 1.0
MAX_ADDRESS_S: Final = 300.0
MAX_NAME_S: Final = 30.0
FORGET_S: Final = 900.0  # time without wrong proofs after which earlier ones are forgotten
TURN_S: Final = 1.0  # seconds between two turns of one name
TURNS: Final = 5  # turns of an address at a name in a `TURNS_S`, because people mistype
TURNS_S: Final = 86400.0
USE_S: Final = 120.0  # seconds after which an unused turn expires
KNOWN_S: Final = 30 * 86400.0  # time for which an address with a right proof is remembered
MAX_KEPT: Final = 10_000  # addresses, names, and pairs of the two that were right

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Wrong:
    """Wrong proofs of an address or for a name. Times are seconds since the epoch."""

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
    """The latest `MAX_KEPT` keys with wrong proofs; keys that wait longest are dropped last."""

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
        """Drop, of the oldest few keys, the one that waits least, so that new keys cannot displace waiting ones at
        once."""
        oldest = [key for key, _ in zip(self._each, range(16), strict=False)]
        del self._each[min(oldest, key=lambda key: max(0.0, self._each[key].until - now))]

    def __len__(self) -> int:
        return len(self._each)


class Guesses:
    """Delays after wrong proofs, by address and name. Not thread-safe."""

    def __init__(self) -> None:
        self._addresses: _Kept[str] = _Kept(MAX_ADDRESS_S)
        self._names: _Kept[str] = _Kept(MAX_NAME_S)
        self._right: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._turns: OrderedDict[tuple[str, str], _Turns] = OrderedDict()
        self._next: OrderedDict[str, float] = OrderedDict()  # by name, the earliest begin of the next turn

    def wait_s(self, address: str, name: str, now: float) -> float:
        """Return the seconds that a further guess has to wait; 0 if it may be checked."""
        address, name = network_of(address), name[:MAX_NAME]
        if self._was_right(address, name, now):
            return 0.0
        of_name = self._names.wait_s(name, now) if name else 0.0
        turn = self._turns.get((site_of(address), name))
        if of_name and turn is not None and not turn.is_used and now < turn.at + USE_S:
            of_name = min(of_name, max(0.0, turn.at - now))
        return max(self._addresses.wait_s(address, now), of_name)

    def ask(self, address: str, name: str, now: float) -> float:
        """Return the seconds that a guess at a name has to wait, like `wait_s`, and give the address a turn if
        possible."""
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
        for table in (self._turns, self._next):
            if len(table) > MAX_KEPT:
                table.popitem(last=False)
        return self.wait_s(address, name, now)

    def look(self, address: str, name: str, now: float) -> float:
        """Return the seconds that a guess has to wait, like `wait_s`; at 0 it is checked now, which uses its turn."""
        wait_s = self.wait_s(address, name, now)
        turn = self._turns.get((site_of(address), name[:MAX_NAME]))
        if not wait_s and turn is not None:
            turn.is_used = True
        return wait_s

    def wrong(self, address: str, name: str, now: float) -> float:
        """Count a wrong proof, and return the seconds that the next one has to wait."""
        address, name = network_of(address), name[:MAX_NAME]
        self._addresses.add(address, now)
        if name:
            self._names.add(name, now)
        if self._was_right(address, name, now) and self._addresses.wait_s(address, now):
            del self._right[address, name]  # it guesses now, so it loses its advantage
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
        """Return the number of stored records."""
        kept = len(self._addresses) + len(self._names) + len(self._right)
        return kept + len(self._turns) + len(self._next)

    def _was_right(self, address: str, name: str, now: float) -> bool:
        at = self._right.get((address, name))
        return at is not None and now - at < KNOWN_S
