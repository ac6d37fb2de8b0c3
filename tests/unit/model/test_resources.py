"""Amounts: exact, compared and named in one place."""

from typing import Any

import pytest
from hypothesis import given as each
from hypothesis import strategies as st

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.resources import AMOUNTS, NOTHING, UNLIMITED, Amount, Resources, total
from mesos_gpu.wire import journal

AMOUNT = st.integers(0, 10**6).map(lambda milli: milli / 1000)
RESOURCES = st.builds(
    lambda cpus, mem_mib, gpus, disk_mib: Resources(cpus=cpus, mem_mib=mem_mib, gpus=gpus, disk_mib=disk_mib),
    AMOUNT,
    AMOUNT,
    st.integers(0, 64),
    AMOUNT,
)


def test_amount_of_a_tenth_ten_times_is_exactly_one() -> None:
    left = Resources(cpus=1)
    for _ in range(10):
        left -= Resources(cpus=0.1)
    assert left == NOTHING
    assert not left
    assert hash(left) == hash(NOTHING)


def test_halves_of_an_odd_amount_are_together_the_whole() -> None:
    one, other = Resources(cpus=0.005, mem_mib=97).halves()
    assert one + other == Resources(cpus=0.005, mem_mib=97)
    assert (one.cpu_milli, other.cpu_milli) == (3, 2)


def test_amount_of_which_more_is_kept_than_there_is_covers_nothing() -> None:
    free = Resources(cpus=2, mem_mib=100) - Resources(disk_mib=5)
    assert not free.covers(Resources(cpus=2))
    assert (free + Resources(disk_mib=5)).covers(Resources(cpus=2))
    assert free.times(Resources(cpus=0.5)) == 4
    assert free.times(Resources(disk_mib=1)) == 0
    assert free.times(NOTHING) == UNLIMITED


def test_lacking_amount_is_named_with_its_unit_and_in_words() -> None:
    lack = Resources(cpus=1, mem_mib=50).lacking(Resources(cpus=1.5, mem_mib=50, gpus=2, disk_mib=8))
    assert [(amount.mesos, amount.words, value) for amount, value in lack.items()] == [
        ("cpus", "cpus", 0.5),
        ("gpus", "GPUs", 2.0),
        ("disk", "MiB of disk", 8.0),
    ]
    assert total(only for _, only in lack.each()) == lack
    assert repr(lack) == "Resources(cpus=0.5, gpus=2, disk_mib=8)"


def test_scalars_of_other_names_and_of_several_roles_are_left_out_and_summed() -> None:
    offered = [("cpus", 1.5), ("mem", 10.0), ("cpus", 0.25), ("bandwidth", 9.0)]
    assert Resources.of_mesos(offered) == Resources(cpus=1.75, mem_mib=10)


@pytest.mark.parametrize("amount", AMOUNTS, ids=lambda amount: amount.name)
def test_amounts_are_each_a_field_of_a_job_a_property_and_an_argument(amount: Amount) -> None:
    given: dict[str, Any] = {amount.name: 3}
    assert getattr(JobSpec("j", **given).resources, amount.name) == 3
    assert getattr(Resources(**given), amount.name) == 3


def test_journal_from_before_there_was_a_further_amount_can_be_read() -> None:
    assert journal.decode_flat(b"[1.5, 64.0]", Resources) == Resources(cpus=1.5, mem_mib=64)
    written = journal.encode(Resources(cpus=1.5, gpus=2))
    assert written == b"[1.5,0.0,2.0,0.0]", "as state files had it before there was this type"
    assert journal.decode_flat(written, Resources) == Resources(cpus=1.5, gpus=2)


@each(RESOURCES, RESOURCES, st.integers(1, 9))
def test_amounts_agree_in_times_covers_and_lacking(free: Resources, need: Resources, count: int) -> None:
    assert free.covers(need.scaled(count)) == (free.times(need) >= count)
    assert free.covers(need) == (not free.lacking(need))
    assert (free + free.lacking(need)).covers(need)
    assert free.least(need).lacking(free.most(need)) == free.most(need) - free.least(need)
    assert Resources.largest([free, need]) == free.most(need)
    assert Resources.of(list(free)) == free
