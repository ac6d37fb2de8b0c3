"""MIG instances of shares, and places where a host makes them."""

import pytest

from mesos_gpu.model.shares.card import MigInstance, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.policy.sharing.mig import Slot, place_of, slot_for, start_for
from tests.doubles.nvml.mig_tables import MIG_TABLES

H100 = MIG_TABLES["NVIDIA H100 80GB HBM3"].profiles()
SMALL = MigInstance("MIG-small", "1g.10gb", 9984, 16, 13, 0, 142, 125, 6, 1)
LARGE = MigInstance("MIG-large", "3g.40gb", 40448, 60, 1, 0, 428, 500, 0, 4)
MADE_BY_HAND = Sharing(80000, mig=True, instances=(LARGE, SMALL))
EMPTY = Sharing(80000, mig=True, profiles=H100)


def fraction(milli: int) -> ShareRequest:
    """A part of the card's memory and compute."""
    return ShareRequest(milli, memory_milli=milli)


@pytest.mark.parametrize(
    ("request_", "taken", "want"),
    [
        (fraction(125), (), Slot("MIG-small", 142, 9984)),
        (fraction(142), (), Slot("MIG-large", 428, 40448)),
        (ShareRequest(100, memory_mib=9984), (), Slot("MIG-small", 142, 9984)),
        (ShareRequest(100, memory_mib=9985), (), Slot("MIG-large", 428, 40448)),
        (ShareRequest(143, memory_mib=1), (), Slot("MIG-large", 428, 40448)),
        (fraction(100), ("MIG-small",), Slot("MIG-large", 428, 40448)),
        (fraction(100), ("MIG-small", "MIG-large"), "its MIG instances that are large enough are taken"),
        (fraction(428), ("MIG-large",), "its MIG instances that are large enough are taken"),
        (
            fraction(429),
            (),
            "none of its MIG instances is large enough: the largest, 3g.40gb, has 40448 MiB and 42.8 % of the compute",
        ),
    ],
)  # fmt: skip
def test_share_gets_the_smallest_instance_that_covers_it(
    request_: ShareRequest, taken: tuple[str, ...], want: Slot | str
) -> None:
    assert slot_for(request_, MADE_BY_HAND, taken) == want


def test_card_without_instances_says_so() -> None:
    assert (
        slot_for(fraction(100), Sharing(80000, mig=True), ()) == "its MIG mode is on, and it has no instances"
    )


def test_seven_small_shares_fit_on_a_card_whose_host_makes_instances() -> None:
    taken: list[str] = []
    for _ in range(7):
        slot = slot_for(fraction(125), EMPTY, taken)
        assert isinstance(slot, Slot)
        taken.append(slot.instance)
    assert sorted(taken) == [f"1g.10gb@{start}" for start in range(7)]
    assert slot_for(fraction(125), EMPTY, taken) == "its MIG instances that are large enough are taken"


@pytest.mark.parametrize(
    ("milli", "profile"),
    [
        (125, "1g.10gb"),
        (143, "2g.20gb"),
        (250, "2g.20gb"),
        (286, "3g.40gb"),
        (428, "3g.40gb"),
        (500, "4g.40gb"),
        (501, "7g.80gb"),
        (999, "7g.80gb"),
    ],
)
def test_smallest_profile_that_covers_the_share_is_made(milli: int, profile: str) -> None:
    slot = slot_for(fraction(milli), EMPTY, ())
    assert isinstance(slot, Slot)
    assert place_of(slot.instance) is not None
    assert slot.instance.startswith(f"{profile}@")


def test_mig_profile_for_more_memory_than_compute_wastes_no_compute() -> None:
    slot = slot_for(ShareRequest(100, memory_mib=15000), EMPTY, ())
    assert isinstance(slot, Slot)
    assert slot.instance.startswith("1g.20gb@")


@pytest.mark.parametrize(
    ("name", "occupied", "start"),
    [
        ("1g.10gb", (), 6),  # 4g.40gb and all three 2g.20gb are still possible
        ("1g.10gb", (6,), 4),
        ("2g.20gb", (), 4),  # leaves 4g.40gb at 0
        ("3g.40gb", (), 4),  # likewise
        ("3g.40gb", (4, 5, 6, 7), 0),
        ("7g.80gb", (3,), None),
    ],
)
def test_instance_is_made_where_it_leaves_the_largest_others(
    name: str, occupied: tuple[int, ...], start: int | None
) -> None:
    (profile,) = [each for each in H100 if each.name == name]
    assert start_for(profile, H100, occupied) == start


def test_mig_slot_spares_an_instance_made_by_an_operator() -> None:
    sharing = Sharing(80000, mig=True, instances=(LARGE,), profiles=H100)
    assert slot_for(fraction(450), sharing, ()) == "its MIG instances that are large enough are taken"
    slot = slot_for(fraction(250), sharing, ())
    assert slot == Slot("2g.20gb@4", 285, 20096), "smaller than the one that is there"
    assert slot_for(fraction(250), sharing, ("2g.20gb@4",)) == Slot("MIG-large", 428, 40448)


def test_instance_that_was_made_for_a_share_is_no_free_one() -> None:
    made = MigInstance("MIG-made", "2g.20gb", 20096, 32, 3, 0, 285, 250, 4, 2)
    sharing = Sharing(80000, mig=True, instances=(made,), profiles=H100)
    slot = slot_for(fraction(250), sharing, ("2g.20gb@4",))
    assert isinstance(slot, Slot)
    assert slot.instance == "2g.20gb@0", "there is another place, and none for larger ones"


@pytest.mark.parametrize("model", MIG_TABLES)
def test_thousandths_of_a_full_card_are_never_more_than_the_card(model: str) -> None:
    table = MIG_TABLES[model]
    for profile in table.profiles():
        slices = next(row[3] for row in table.rows if row[1] == profile.name)
        assert table.compute_slices // slices * profile.compute_milli <= 1000
        assert table.memory_slices // profile.width * profile.memory_milli <= 1000
        assert all(start + profile.width <= table.memory_slices for start in profile.starts)


def test_mig_uuid_is_no_placement() -> None:
    assert place_of("MIG-1-2") is None
    assert place_of("1g.10gb@3") == ("1g.10gb", 3)
