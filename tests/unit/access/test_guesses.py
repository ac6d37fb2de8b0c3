"""Guesses: the delays that wrong proofs cause."""

import heapq
import math

import pytest

from mesos_gpu.access import guesses as module
from mesos_gpu.access.guesses import (
    FORGET_S,
    FREE,
    MAX_ADDRESS_S,
    MAX_NAME_S,
    TURN_S,
    TURNS,
    USE_S,
    Guesses,
)


def test_guesses_beyond_a_few_double_the_wait() -> None:
    guesses, now, waits = Guesses(), 0.0, []
    for _ in range(FREE + 12):
        wait_s = guesses.wrong("1.2.3.4", "", now)
        waits.append(wait_s)
        now += wait_s
    assert waits[:FREE] == [0.0] * FREE
    assert waits[FREE : FREE + 4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MAX_ADDRESS_S
    assert guesses.wait_s("1.2.3.4", "", now + FORGET_S) == 0.0


def test_guesses_are_forgotten_after_a_while() -> None:
    guesses = Guesses()
    for _ in range(FREE + 1):
        guesses.wrong("1.2.3.4", "", 0.0)
    later = 2 * FORGET_S
    assert guesses.wrong("1.2.3.4", "", later) == 0.0


def test_guesses_at_a_name_from_many_addresses_delay_all_but_its_own() -> None:
    guesses = Guesses()
    guesses.right("7.7.7.7", "ann", 0.0)
    for i in range(FREE + 20):
        guesses.wrong(f"9.9.9.{i}", "ann", 0.0)
    assert 0 < guesses.wait_s("8.8.8.8", "ann", 0.0) <= MAX_NAME_S
    assert guesses.wait_s("7.7.7.7", "ann", 0.0) == 0.0
    assert guesses.wait_s("8.8.8.8", "bob", 0.0) == 0.0


def test_guesses_of_an_address_stay_when_one_of_its_names_is_right() -> None:
    guesses = Guesses()
    for i in range(FREE + 3):
        guesses.wrong("9.9.9.9", f"name{i}", 0.0)
        guesses.right("9.9.9.9", "mallory", 0.0)
    assert guesses.wait_s("9.9.9.9", "ann", 0.0) > 0


def test_guesses_after_a_right_proof_wait_as_others() -> None:
    guesses = Guesses()
    guesses.right("7.7.7.7", "ann", 0.0)
    waits = [guesses.wrong("7.7.7.7", "ann", 0.0) for _ in range(FREE + 3)]
    assert waits[-1] > 0


def test_guesses_of_an_ipv6_network_count_as_one_address() -> None:
    guesses = Guesses()
    for i in range(FREE + 1):
        guesses.wrong(f"2001:db8::{i:x}", "", 0.0)
    assert guesses.wait_s("2001:db8::ffff", "", 0.0) > 0
    assert guesses.wait_s("2001:db8:0:1::1", "", 0.0) == 0.0


def test_guesses_are_bounded_and_new_addresses_do_not_displace_waiting_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 500
    monkeypatch.setattr(module, "MAX_KEPT", most)
    guesses = Guesses()
    for _ in range(FREE + 8):
        guesses.wrong("9.9.9.9", "", 0.0)
    for i in range(3 * most):
        guesses.wrong(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", f"name{i}", 1.0)
        guesses.right(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", f"name{i}", 1.0)
    assert len(guesses) <= 3 * most
    assert guesses.wait_s("9.9.9.9", "", 2.0) > 0


# --- a name that many addresses guess at


class Siege:
    """Guesses at one name from many addresses, each again as soon as it may; the clock is the test's.

    Attributes:
        looked_at: Guesses that were looked at.
    """

    def __init__(self, addresses: int, network: str = "10.{}.{}.{}") -> None:
        self.guesses, self.looked_at, self.now = Guesses(), 0, 0.0
        names = (network.format(n >> 16, n >> 8 & 255, n & 255) for n in range(addresses))
        self._next = [(0.0, each) for each in names]  # when each guesses again: a heap

    def run(self, until: float) -> None:
        """Let time pass, and all of them guess."""
        while self._next[0][0] <= until:
            self.now, address = heapq.heappop(self._next)
            wait_s = self.guesses.ask(address, "ann", self.now)
            wait_s = wait_s or self.guesses.look(address, "ann", self.now)
            if not wait_s:
                self.looked_at += 1
                self.guesses.wrong(address, "ann", self.now)
            heapq.heappush(self._next, (self.now + max(wait_s, 0.01), address))
        self.now = until

    def log_in(self, address: str, most_s: float) -> float:
        """Try from now on as a client does that waits as long as it is told; how long that took."""
        began = self.now
        while self.now - began <= most_s:
            wait_s = self.guesses.ask(address, "ann", self.now)
            wait_s = wait_s or self.guesses.look(address, "ann", self.now)
            if not wait_s:
                return self.now - began
            self.run(self.now + math.ceil(wait_s))  # as `Retry-After` says
        return math.inf


MANY = pytest.param(1000, marks=pytest.mark.long)


@pytest.mark.parametrize("addresses", [10, 100, MANY])
@pytest.mark.parametrize("after_s", [0.5, 60.0, 3000.0])
def test_guesses_at_a_name_let_its_owner_in(addresses: int, after_s: float) -> None:
    siege = Siege(addresses)
    siege.run(after_s)
    assert siege.log_in("192.0.2.1", 2 * addresses) <= TURN_S * addresses + 2


@pytest.mark.parametrize("addresses", [10, 100, MANY])
def test_guesses_at_a_name_leave_further_turns_to_an_owner_that_mistypes(addresses: int) -> None:
    siege = Siege(addresses)
    siege.run(60.0)
    for _ in range(3):
        assert siege.log_in("192.0.2.1", 2 * addresses) <= TURN_S * addresses + 2
        siege.guesses.wrong("192.0.2.1", "ann", siege.now)
    assert siege.log_in("192.0.2.1", 2 * addresses) <= TURN_S * addresses + 2


@pytest.mark.parametrize("addresses", [1, 10, 100, MANY])
def test_guesses_at_one_name_are_bounded_for_any_number_of_addresses(addresses: int) -> None:
    siege = Siege(addresses)
    siege.run(3600.0)
    beside_turns = 3600 / MAX_NAME_S + FREE + 10  # the first waits are shorter
    assert siege.looked_at <= min(3600 / TURN_S, TURNS * addresses) + beside_turns
    first = siege.looked_at
    siege.run(7200.0)
    assert (
        siege.looked_at - first
        <= max(0, min(3600 / TURN_S, TURNS * addresses - 3600 / TURN_S)) + beside_turns
    )


def test_guesses_stay_bounded_while_the_owner_asks_again_and_again() -> None:
    """A poll each second, as of a dashboard."""
    siege = Siege(100)
    siege.guesses.right("192.0.2.1", "ann", 0.0)
    for second in range(600):
        siege.run(float(second))
        siege.guesses.right("192.0.2.1", "ann", float(second))
    assert siege.looked_at <= min(600 / TURN_S, TURNS * 100) + 600 / MAX_NAME_S + FREE + 10


def test_guesses_of_one_ipv6_network_have_the_turns_of_one() -> None:
    siege = Siege(1000, "2001:db8:0:1::{:x}:{:x}:{:x}")
    siege.run(600.0)
    assert siege.looked_at <= TURNS + FREE + 20
    assert siege.log_in("2001:db8:1:2::1", 60) <= 2 * TURN_S


@pytest.mark.parametrize("networks", [400, pytest.param(2000, marks=pytest.mark.long)])
def test_guesses_of_networks_of_one_ipv6_site_have_the_turns_of_one(networks: int) -> None:
    """The owner of a site has 65,536 networks, and would keep the owner of a name waiting for as many seconds."""
    siege = Siege(networks, "2001:db8:0:{1:x}{2:02x}::1")
    siege.run(60.0)
    assert siege.log_in("192.0.2.1", 60) <= 2 * TURN_S
    siege.run(600.0)
    assert siege.looked_at <= TURNS + FREE + 600 / MAX_NAME_S + 10


def test_guesses_turn_that_is_not_used_ends_and_is_used_once() -> None:
    siege = Siege(10)
    siege.run(60.0)
    guesses, now = siege.guesses, siege.now
    wait_s = guesses.ask("192.0.2.1", "ann", now)
    assert guesses.ask("192.0.2.1", "ann", now) == wait_s, "asking again changes nothing"
    assert guesses.look("192.0.2.1", "ann", now + wait_s) == 0.0
    assert guesses.look("192.0.2.1", "ann", now + wait_s) > 0
    later = guesses.ask("192.0.2.2", "ann", now)
    guesses.wrong("10.0.0.1", "ann", now + later + USE_S)
    assert guesses.wait_s("192.0.2.2", "ann", now + later + USE_S + 0.1) > 0
