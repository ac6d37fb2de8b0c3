"""Relapses of a card: how long each keeps it out, what a reset forgives, and errors that are counted."""

from dataclasses import replace

import pytest

from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.health import CardHealth, Reading
from mesos_gpu.policy.gpus.health import HealthSettings, advance, noted, released, unread

(GPU,) = simulated_gpus(1, "Tesla T4", seed="relapse")
SETTINGS = HealthSettings(recheck_s=60, recheck_most_s=600, peace_s=10_000, note_s=100)
WELL = Reading(GPU)
BROKEN = Reading(GPU, xids=(62,))


def relapsed(times: int) -> tuple[CardHealth, float]:
    """A card that has fallen sick so often, one time soon after the other."""
    record, now = unread(GPU), 1000.0
    for time in range(times):
        record = advance(record, BROKEN, now, SETTINGS)
        while time < times - 1 and record.gpu.health is not Health.OK:
            now += 10
            record = advance(record, WELL, now, SETTINGS)
    return record, now


def out_s(record: CardHealth, now: float) -> float:
    """How long a sick card is out, with readings that are clean from now on."""
    began_at = now
    while record.gpu.health.broken:
        now += 10
        record = advance(record, WELL, now, SETTINGS)
    return now - began_at


@pytest.mark.parametrize(("times", "first_s", "next_s"), [(1, 60, 120), (2, 60, 120), (4, 60, 120)])
def test_released_card_is_rechecked_and_counts_as_relapsed_once(
    times: int, first_s: float, next_s: float
) -> None:
    record, now = relapsed(times)
    record = released(record, now, SETTINGS)
    assert out_s(record, now) == first_s
    while record.gpu.health is not Health.OK:
        now += 10
        record = advance(record, WELL, now, SETTINGS)
    assert out_s(advance(record, BROKEN, now, SETTINGS), now) == next_s


def test_released_card_that_was_never_sick_has_its_first_wait_before_it() -> None:
    record = released(advance(unread(GPU), WELL, 1000.0, SETTINGS), 1000.0, SETTINGS)
    assert out_s(advance(record, BROKEN, 1010.0, SETTINGS), 1010.0) == 60


def test_recheck_is_due_at_its_second_and_not_before() -> None:
    record = advance(unread(GPU), BROKEN, 1000.0, SETTINGS)
    assert advance(record, WELL, 1059.9, SETTINGS).gpu.health is Health.SICK
    assert advance(record, WELL, 1060.0, SETTINGS).gpu.health is Health.SUSPECT


@pytest.mark.parametrize(("peace_s", "wait_s"), [(10_000.0, 120), (10_001.0, 60)])
def test_peace_forgives_a_relapse_only_after_all_of_it(peace_s: float, wait_s: float) -> None:
    record = advance(unread(GPU), BROKEN, 1000.0, SETTINGS)
    for now in (1060.0, 1070.0, 1080.0, 1090.0):
        record = advance(record, WELL, now, SETTINGS)
    assert record.gpu.health is Health.OK
    again = advance(record, BROKEN, 1000.0 + peace_s, SETTINGS)
    assert again.recheck_at == 1000.0 + peace_s + wait_s


def test_warning_of_an_event_stays_for_its_time_and_not_longer() -> None:
    record = advance(unread(GPU), Reading(GPU, xids=(31,)), 1000.0, SETTINGS)
    assert advance(record, WELL, 1099.9, SETTINGS).gpu.warnings == ("XID 31",)
    assert advance(record, WELL, 1100.0, SETTINGS).gpu.warnings == ()


def test_uncorrectable_errors_count_where_they_grow_and_nowhere_else() -> None:
    record, states = unread(GPU), []
    for number, errors in enumerate((7, 7, None, 7, 6, 6)):
        record = advance(record, replace(WELL, uncorrectable_ecc=errors), 1000.0 + number, SETTINGS)
        states.append(record.gpu.health)
    assert states == [Health.OK] * 6
    assert advance(record, replace(WELL, uncorrectable_ecc=7), 1010.0, SETTINGS).gpu.health is Health.SICK


def test_stranger_makes_a_suspect_card_dirty_and_leaves_a_sick_one_sick() -> None:
    suspect = advance(unread(GPU), Reading(GPU, unreadable="Unknown Error"), 1000.0, SETTINGS)
    assert suspect.gpu.health is Health.SUSPECT
    assert advance(suspect, WELL, 1010.0, SETTINGS, stranger="pid 1").gpu.health is Health.DIRTY
    sick = advance(unread(GPU), BROKEN, 1000.0, SETTINGS)
    assert advance(sick, WELL, 1010.0, SETTINGS, stranger="pid 1").gpu.health is Health.SICK


def test_history_has_a_note_that_changes_no_health() -> None:
    record = advance(unread(GPU), WELL, 1000.0, SETTINGS)
    (line,) = noted(record, "drained", 1010.0).gpu.history
    assert (line.at, line.old, line.new, line.reason) == (1010.0, Health.OK, Health.OK, "drained")
