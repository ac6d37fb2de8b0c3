"""Free parts of cards that are open to shares, excess of shares, and places of MIG instances."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.card import MigInstance, MigProfile, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share
from mesos_gpu.policy.sharing.mig import Slot, place_of, slot_for, start_for
from mesos_gpu.policy.sharing.parts import GpuPart, unshared
from mesos_gpu.policy.sharing.resizing import fixed, lacking, resized
from tests.doubles.builders import gpu
from tests.doubles.overdrawn import overdrawn

CARD = GpuId("g0")
MPS = Share(100, 2000, 3000, Method.SHIM_MPS2, "ann")
PLAIN = Share(200, 1000, 1000, Method.SHIM_WINDOWS)
MIG = Share(142, 500, 500, Method.MIG, instance="MIG-a")
EMPTY = GpuPart(CARD, 1000, 8000)


def test_part_after_shares_is_less_by_all_of_them() -> None:
    assert EMPTY.less() is EMPTY
    assert EMPTY.less(MPS) == GpuPart(CARD, 900, 6000, Method.SHIM_MPS2, "ann", (), 1)
    two = replace(MIG, instance="MIG-b")
    assert EMPTY.less(MIG, two) == GpuPart(CARD, 716, 7000, Method.MIG, "", ("MIG-a", "MIG-b"), 2)
    assert EMPTY.less(MIG).less(two) == EMPTY.less(MIG, two)
    kept = GpuPart(CARD, 500, 500, Method.SHIM_MPS2, "ann", (), 1)
    assert kept.less(replace(MPS, domain="")).domain == "ann"


def test_part_after_the_end_of_shares_is_more_and_empty_after_the_last() -> None:
    one, both = EMPTY.less(MIG), EMPTY.less(MIG, replace(MIG, instance="MIG-b"))
    assert both.more(MIG, EMPTY) == GpuPart(CARD, 858, 7500, Method.MIG, "", ("MIG-b",), 1)
    assert one.more(MIG, EMPTY) == EMPTY
    twice = EMPTY.less(MIG, MIG)
    assert twice.more(MIG, EMPTY).taken == ("MIG-a",)
    assert twice.more(replace(MIG, instance="other"), EMPTY).taken == ("MIG-a", "MIG-a")
    held = replace(EMPTY, taken=("MIG-x",), milli=1000 - 142, memory_mib=7500)
    assert held.more(replace(MIG, instance=""), EMPTY) == replace(EMPTY, taken=("MIG-x",), shares=-1)


def test_least_of_two_parts_is_what_is_free_in_both() -> None:
    one = GpuPart(CARD, 900, 100, Method.SHIM_MPS2, "ann", ("x", "y"), 1)
    other = GpuPart(CARD, 800, 200, Method.SHIM_MPS2, "ann", ("y", "z"), 3)
    assert one.least(other) == GpuPart(CARD, 800, 100, Method.SHIM_MPS2, "ann", ("x", "y", "z"), 3)
    assert other.least(one) == GpuPart(CARD, 800, 100, Method.SHIM_MPS2, "ann", ("y", "z", "x"), 3)
    assert EMPTY.least(one) == replace(one, memory_mib=100)
    assert one.least(EMPTY) == one
    for excluded in replace(one, domain="bob"), replace(one, method=Method.DMEM_MPS3):
        assert one.least(excluded) == replace(one, milli=0, memory_mib=0)


def test_unshared_card_has_no_memory_if_its_host_cannot_share_it() -> None:
    assert unshared(gpu("g0")) == GpuPart(CARD, 1000, 0)
    assert unshared(replace(gpu("g0"), sharing=Sharing(7000)), 2000) == GpuPart(CARD, 2000, 7000)


@pytest.mark.parametrize(
    ("shares", "problems"),
    [
        ((), []),
        ((PLAIN, PLAIN), []),
        ((PLAIN,) * 3, ["g0 has 2000 MiB for shares, and 3000 are granted"]),
        ((MIG, PLAIN), ["the shares of g0 are enforced in several ways: ['mig', 'shim+windows']"]),
        ((MIG, MIG), ["an instance of g0 is granted twice: ['MIG-a', 'MIG-a']"]),
        ((MIG, replace(MIG, instance="MIG-b")), []),
        (
            (replace(MPS, memory_mib=1), replace(MPS, memory_mib=1, domain=EVERYBODY)),
            ["the shares of g0 are of several users: ['*', 'ann']"],
        ),
    ],
)
def test_card_with_more_shares_than_it_has_says_so(shares: tuple[Share, ...], problems: list[str]) -> None:
    assert overdrawn(CARD, Sharing(2000), shares) == problems
    if "MiB" not in "".join(problems):
        assert overdrawn(CARD, None, shares) == problems
    else:
        assert overdrawn(CARD, None, shares) == []


def test_change_of_a_share_is_refused_where_its_method_fixes_it() -> None:
    more, longer = replace(MIG, memory_mib=600), replace(MIG, compute_milli=150)
    assert fixed(MIG, more) == "its memory is that of a MIG instance"
    assert fixed(MIG, longer) == "its compute is that of a MIG instance"
    assert fixed(MPS, replace(MPS, compute_milli=1)) == (
        "its percentage of an MPS server is fixed when it starts"
    )
    assert fixed(MPS, replace(MPS, memory_mib=1)) == fixed(MIG, MIG) == ""
    assert fixed(PLAIN, replace(PLAIN, memory_mib=1, compute_milli=1)) == ""


def test_resized_share_is_what_is_asked_for_by_the_same_method() -> None:
    asked = ShareRequest(300, memory_milli=250, memory_max_mib=5000)
    assert resized(MPS, asked, 8000) == replace(MPS, compute_milli=300, memory_mib=2000, memory_max_mib=2000)
    burst = replace(PLAIN, method=Method.DMEM_WINDOWS)
    assert resized(burst, asked, 8000) == replace(
        burst, compute_milli=300, memory_mib=2000, memory_max_mib=5000
    )


@pytest.mark.parametrize(
    ("memory_mib", "milli", "lacks"),
    [
        (1500, 300, ""),
        (1501, 300, "g0 has 500 MiB free, and 501 MiB more are asked for"),
        (1500, 301, "g0 has 10 % of its compute free, and 10.1 % more are asked for"),
        (1, 1, ""),
    ],
)
def test_card_lacks_what_shares_grow_by_beyond_what_is_free(memory_mib: int, milli: int, lacks: str) -> None:
    wanted = replace(PLAIN, memory_mib=memory_mib, compute_milli=milli)
    assert lacking("g0", 2500, 500, [PLAIN, replace(PLAIN)], [PLAIN, wanted]) == lacks
    small = lacking("g0", 1, 1, [PLAIN, replace(PLAIN)], [PLAIN, wanted])
    assert bool(small) == (memory_mib > 1000 or milli > 200)
    if small:
        assert "has 0 MiB free" in small


def profile(name: str, width: int, compute_milli: int, starts: tuple[int, ...]) -> MigProfile:
    return MigProfile(name, 0, 1000 * width, compute_milli, 125 * width, starts, width)


def test_instance_leaves_room_for_the_largest_others_by_width_then_compute() -> None:
    one = profile("one", 1, 100, (0, 7))
    wide, strong, weak = profile("z", 4, 1, (4,)), profile("y", 3, 400, (0,)), profile("x", 3, 300, (5,))
    assert start_for(one, (one, strong, wide), ()) == 0, "the wider one stays possible"
    assert start_for(one, (weak, one, strong), ()) == 7, "of the same width the one with more compute"
    assert start_for(one, (one, weak), ()) == 0
    assert start_for(one, (one, replace(weak, compute_milli=400), strong), ()) == 0, "by name then"
    assert start_for(one, (one, strong), (0, 7)) is None


@pytest.mark.parametrize(
    ("instance", "place"),
    [("1g@3", ("1g", 3)), ("a@b@0", ("a@b", 0)), ("7", None), ("1g@", None), ("1g@x", None), ("", None)],
)
def test_place_of_an_instance_is_its_profile_and_start(instance: str, place: tuple[str, int] | None) -> None:
    assert place_of(instance) == place


def test_taken_place_of_a_profile_that_is_gone_occupies_nothing() -> None:
    card = Sharing(8000, mig=True, profiles=(profile("1g", 1, 125, (0, 1)),))
    asked = ShareRequest(125, 125)
    assert slot_for(asked, card, ("gone@0", "1g@1")) == Slot("1g@0", 125, 1000)
    assert slot_for(asked, card, ("1g@0", "1g@1")) == "its MIG instances that are large enough are taken"


def test_largest_size_of_a_card_is_named_with_memory_and_compute() -> None:
    made = MigInstance("MIG-m", "3g", 3000, 1, 0, 0, 375, 375, 0, 3)
    card = Sharing(8000, mig=True, instances=(made,), profiles=(profile("2g", 2, 500, (0,)),))
    words = "none of its MIG instances is large enough: the largest, {} MiB and {} % of the compute"
    assert slot_for(ShareRequest(600, 1), card, ()) == words.format("3g, has 3000", "37.5")
    made = replace(made, memory_mib=2000)
    assert slot_for(ShareRequest(600, 1), replace(card, instances=(made,)), ()) == words.format(
        "2g, has 2000", "50"
    )
