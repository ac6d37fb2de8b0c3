"""So many requests a second, so many at once; and what that remembers is bounded."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mesos_gpu.access.rate import Buckets, Tally, Waiters, network_of


def test_rate_lets_a_burst_through_and_then_so_many_a_second() -> None:
    buckets = Buckets(10.0, 3)
    assert [buckets.take("ann", 100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.take("ann", 100.0) == pytest.approx(0.1)
    assert buckets.take("ann", 100.05) == pytest.approx(0.05)
    assert buckets.take("ann", 100.1001) == 0.0
    assert buckets.take("ann", 100.1001) > 0.0
    assert buckets.take("bob", 100.1001) == 0.0


def test_waiting_as_long_as_is_said_is_enough() -> None:
    buckets = Buckets(3.0, 1)
    now = 5.0
    assert buckets.take("ann", now) == 0.0
    now += buckets.take("ann", now)
    assert buckets.take("ann", now + 1e-9) == 0.0


def test_refusals_cost_nothing() -> None:
    """Else who is refused and asks on would never be let in."""
    buckets = Buckets(1.0, 1)
    assert buckets.take("ann", 0.0) == 0.0
    assert all(buckets.take("ann", 0.5) for _ in range(100))
    assert buckets.take("ann", 1.0) == 0.0


@given(
    st.floats(0.1, 1000.0),
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1.0, 3.0)), max_size=200),
)
@example(1.0, 1, [("a", -1.0), ("a", 1.0)])
def test_rate_gives_no_key_more_than_its_burst_and_rate(
    rate: float, burst: int, asked: list[tuple[str, float]]
) -> None:
    """Even if the clock goes back."""
    buckets, now, taken = Buckets(rate, burst), 0.0, dict.fromkeys("abc", 0)
    first: dict[str, float] = {}
    latest: dict[str, float] = {}
    for key, step in asked:
        now += step
        first.setdefault(key, now)
        latest[key] = max(latest.get(key, now), now)
        taken[key] += buckets.take(key, now) == 0.0
    assert all(taken[key] <= burst + rate * (latest[key] - first[key]) + 1e-6 for key in first)


def test_rate_remembers_a_bounded_number_of_keys() -> None:
    buckets = Buckets(1.0, 1, most_keys=100)
    for number in range(1000):
        assert buckets.take(str(number), 0.0) == 0.0
        assert buckets.take("often", 0.0) == 0.0 or number  # never the one that was forgotten
    assert len(buckets) == 100
    assert buckets.take("often", 0.0) > 0.0


def test_rate_that_is_unset_lets_all_through_and_remembers_none() -> None:
    buckets = Buckets(0.0, 1)
    assert not any(buckets.take("ann", 0.0) for _ in range(100))
    assert len(buckets) == 0


def test_rate_bounds_concurrent_requests_of_one_and_of_all() -> None:
    tally = Tally(2, 3)
    assert [tally.enter("ann"), tally.enter("ann"), tally.enter("ann")] == [True, True, False]
    assert [tally.enter("bob"), tally.enter("bob")] == [True, False]
    tally.leave("ann")
    assert tally.enter("bob")
    for key in ("ann", "bob", "bob"):
        tally.leave(key)
    assert len(tally) == 0


def test_zero_is_no_limit() -> None:
    tally = Tally(0)
    assert all(tally.enter("ann") for _ in range(1000))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


# --- what waits


class Looked:
    """A member that counts how often any of them is looked at."""

    count = 0

    def __hash__(self) -> int:
        Looked.count += 1
        return object.__hash__(self)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), max_size=60))
def test_waiters_are_those_that_were_added_in_order(steps: list[tuple[str, int, bool]]) -> None:
    waiters, model = Waiters[int](), dict[str, list[int]]()
    for key, member, is_added in steps:
        members = model.setdefault(key, [])
        if member in members:
            members.remove(member)
        if is_added:
            members.append(member)
            waiters.add(key, member)
        else:
            waiters.remove(key, member)
        assert len(waiters) == sum(map(len, model.values()))
        for each, there in model.items():
            assert (waiters.count(each), waiters.oldest(each)) == (len(there), next(iter(there), None))
        largest = max(map(len, model.values()))
        oldest = {there[0] for there in model.values() if there and len(there) == largest}
        first = waiters.oldest_of_largest()
        assert first in oldest if oldest else first is None


@pytest.mark.parametrize("count", [10, 1000])
def test_rate_waiters_are_not_scanned_by_any_operation(count: int) -> None:
    waiters, members = Waiters[Looked](), [Looked() for _ in range(count)]
    for n, each in enumerate(members):
        waiters.add(f"10.0.0.{n % 5}", each)
    Looked.count = 0
    first = waiters.oldest_of_largest()
    assert first is members[0]
    waiters.remove("10.0.0.0", first)
    waiters.add("10.0.0.0", first)
    assert waiters.oldest("10.0.0.0") is members[5]
    assert Looked.count <= 8
