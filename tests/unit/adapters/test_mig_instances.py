"""MIG instances made and removed by NVML's own placements, over a driver that the test gives."""

from typing import Any

import pytest

from mesos_gpu.adapters.nvml.mig import make_instance, remove_instance
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.shares.card import MigInstance, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.policy.sharing.mig import Slot, place_of, slot_for
from tests.doubles.nvml.fake import FakeNvml
from tests.doubles.nvml.mig_tables import MIG_TABLES

H100 = "NVIDIA H100 80GB HBM3"


def card(made: list[Any] | None = None, model: str = H100, **state: Any) -> tuple[FakeNvml, str, list[Any]]:
    """A card in MIG mode: the library, its UUID, and the instances that it has (id, profile, start, compute)."""
    (gpu,) = simulated_gpus(1, model, seed="mig")
    rows = [] if made is None else made
    fake = FakeNvml([gpu], {"cards": {"0": {"mig": {"mode": 1, "made": rows, **state}, "reserved_mib": 0}}})
    return fake, gpu.id, rows


def test_mig_instance_is_made_at_its_placement_with_all_its_compute() -> None:
    fake, uuid, rows = card()
    made = make_instance(fake, uuid, "3g.40gb", 4)
    assert rows == [[1, 9, 4, [0]]]
    assert made == MigInstance("MIG-0-9-4-0", "3g.40gb", 40448, 60, 1, 0, 428, 500, 4, 4)


def test_mig_instance_left_half_made_is_completed() -> None:
    fake, uuid, rows = card([[5, 19, 6, []]])
    assert make_instance(fake, uuid, "1g.10gb", 6).gpu_instance == 5
    assert rows == [[5, 19, 6, [0]]]
    assert make_instance(fake, uuid, "1g.10gb", 6).gpu_instance == 5, "it is whole now"


def test_mig_placement_that_is_taken_is_a_conflict_without_traces() -> None:
    fake, uuid, rows = card([[1, 9, 4, [0]]])
    with pytest.raises(Conflict, match=r"another MIG instance of .* occupies the place of 1g.10gb@6"):
        make_instance(fake, uuid, "1g.10gb", 6)
    assert rows == [[1, 9, 4, [0]]]


@pytest.mark.parametrize(
    ("profile", "start"), [("1g.10gb", 7), ("3g.40gb", 2), ("1g.5gb", 0), ("1g.10gb+me", 9)]
)
def test_mig_placement_unknown_to_the_card_is_named(profile: str, start: int) -> None:
    fake, uuid, _ = card()
    with pytest.raises(Unavailable) as error:
        make_instance(fake, uuid, profile, start)
    assert f"has no place {profile}@{start}" in error.value.what


def test_mig_instance_is_removed_with_its_content_and_no_other() -> None:
    fake, uuid, rows = card([[1, 9, 4, [0]], [2, 9, 0, [0, 1]]])
    remove_instance(fake, uuid, "3g.40gb", 0)
    assert rows == [[1, 9, 4, [0]]]
    remove_instance(fake, uuid, "3g.40gb", 0)
    remove_instance(fake, uuid, "1g.10gb", 4)
    assert rows == [[1, 9, 4, [0]]], "nothing of that profile begins there"


def test_mig_instance_in_use_is_not_removed() -> None:
    fake, uuid, rows = card([[1, 9, 4, [0]]], busy=[1])
    with pytest.raises(Conflict, match=r"a process uses 3g.40gb@4"):
        remove_instance(fake, uuid, "3g.40gb", 4)
    assert rows == [[1, 9, 4, [0]]]


def test_mig_mode_is_never_changed() -> None:
    (gpu,) = simulated_gpus(1, H100, seed="mig")
    state: dict[str, Any] = {"mode": 0, "made": []}
    fake = FakeNvml([gpu], {"cards": {"0": {"mig": state}}})
    remove_instance(fake, gpu.id, "1g.10gb", 0)
    assert state == {"mode": 0, "made": []}
    assert not hasattr(fake, "nvmlDeviceSetMigMode"), "nothing could"


@pytest.mark.parametrize("model", MIG_TABLES)
def test_mig_instances_fill_a_card_as_chosen_and_are_removed(model: str) -> None:
    fake, uuid, rows = card(model=model)
    sharing = Sharing(90000, mig=True, profiles=MIG_TABLES[model].profiles())
    taken: list[str] = []
    for _ in range(20):
        slot = slot_for(ShareRequest(100, memory_milli=100), sharing, taken)
        if not isinstance(slot, Slot):
            break
        place = place_of(slot.instance)
        assert place is not None
        assert make_instance(fake, uuid, *place).memory_mib == slot.memory_mib
        taken.append(slot.instance)
    assert len(taken) == len(rows) == MIG_TABLES[model].compute_slices
    for instance in taken:
        place = place_of(instance)
        assert place is not None
        remove_instance(fake, uuid, *place)
    assert rows == []
