"""Windows become wider while neighbours do not want the card, and narrow again when they do."""

import os
import struct
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.shares.files import WINDOWS
from isolator.shares.shim.region import MIB, CardLimits, region_of
from isolator.shares.widening import IDLE_S, LOOKS_A_LIST, IdleLending
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.shares.share import Method, Share
from tests.unit.isolator.shares.shim.test_region import write_usage
from tests.unit.isolator.shares.test_resizing import Tenant

SECOND = 1_000_000_000


class Clock:
    """Time that tests make pass."""

    def __init__(self) -> None:
        self.ns = 100 * SECOND

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "node" / "ledger.sqlite")


def asks(tenant: Tenant, at_ns: int) -> None:
    """Have a task say when it wanted its card."""
    write_usage(tenant.region, 64 + 16, struct.pack("<Q", at_ns))


def looked(widening: IdleLending) -> None:
    """Look until the ledger was read again."""
    for _ in range(LOOKS_A_LIST):
        widening.look()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_time_of_an_idle_neighbour_is_used_until_it_wants_it(ledger: Ledger, clock: Clock) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    widening = IdleLending(ledger, clock)
    for tenant in (one, other):
        asks(tenant, clock.ns)
    looked(widening)
    assert (one.limits()[1], other.limits()[1]) == (500, 500), "what nobody has is split"
    clock.ns += SECOND
    asks(one, clock.ns)
    widening.look()
    assert (one.limits()[1], other.limits()[1]) == (1000, 250), "an idle one keeps its own"
    asks(other, clock.ns)
    widening.look()
    assert (one.limits()[1], other.limits()[1]) == (500, 500)


def test_share_that_computes_for_long_is_not_idle(ledger: Ledger, clock: Clock) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    widening = IdleLending(ledger, clock)
    for tenant in (one, other):
        asks(tenant, clock.ns)
    widening.look()
    with other.uses(100):
        for busy_ns in (5, 10, 20):
            clock.ns += int(2 * IDLE_S * SECOND)
            asks(one, clock.ns)
            write_usage(other.region, 64 + 16 * 64 + 8 + 2 * 16 * 8, struct.pack("<Q", busy_ns))
            widening.look()
            assert one.limits()[1] == 500


def test_a_task_that_shares_two_cards_may_want_either(tmp_path: Path, clock: Clock) -> None:
    ledger, cards = Ledger(tmp_path / "ledger.sqlite"), (GpuId("GPU-a"), GpuId("GPU-b"))
    share, me = Share(250, 1000, 1000, Method.SHIM_WINDOWS), Owner.of(os.getpid())
    rows = tuple(CardTrace(gpu, WINDOWS, "") for gpu in cards)
    claim = ShareClaim(share, {gpu: Room(4000) for gpu in cards}, rows)
    regions = {}
    for name in ("one", "other"):
        assert isinstance(ledger.claim(name, cards, me, share=claim), Claimed)
        region = regions[name] = region_of(ledger.directory, TaskId(name))
        region.create([CardLimits(gpu, 1000 * MIB) for gpu in cards])
    for region in regions.values():
        for at in (64 + 16, 64 + 64 + 16):
            write_usage(region, at, struct.pack("<Q", clock.ns))
    widening = IdleLending(ledger, clock)
    looked(widening)
    clock.ns += SECOND
    write_usage(regions["one"], 64 + 16, struct.pack("<Q", clock.ns))
    write_usage(regions["other"], 64 + 64 + 16, struct.pack("<Q", clock.ns))
    looked(widening)

    def lengths(name: str) -> list[int]:
        windows = [card.window for card in regions[name].limits(cards)]
        return [window.length_us // 1000 if window else 0 for window in windows]

    assert (lengths("one"), lengths("other")) == ([40, 10], [10, 40])


def test_widening_follows_tasks_that_come_and_go(ledger: Ledger, clock: Clock) -> None:
    one = Tenant(ledger, "one")
    widening = IdleLending(ledger, clock)
    asks(one, clock.ns)
    looked(widening)
    assert one.limits()[1] == 1000
    other = Tenant(ledger, "other")
    assert one.limits()[1] == 500
    looked(widening)
    widening.look()
    assert one.limits()[1] == 1000, "the new one has not wanted the card yet"
    clock.ns += SECOND
    asks(one, clock.ns)
    other.resize(1, 1000, 600)
    assert one.limits()[1] < 400, "whoever planned did not know who is idle"
    looked(widening)
    widening.look()
    assert one.limits()[1] == 1000
    other.enforcing.let_go(other.owner)
    looked(widening)
    assert one.limits()[1] == 1000


def test_without_shares_the_ledger_is_not_read(ledger: Ledger, clock: Clock) -> None:
    looked(IdleLending(ledger, clock))
    assert not ledger.directory.exists(), "to look makes nothing"


def test_a_card_at_which_another_is_at_work_is_left_to_that(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    widening = IdleLending(ledger, clock)
    asks(one, clock.ns)
    asks(other, clock.ns - 10 * SECOND)
    with ledger.turn(["GPU-a"]):  # type: ignore[list-item]
        looked(widening)
    assert one.limits()[1] == 500
    widening.look()
    assert one.limits()[1] == 1000
