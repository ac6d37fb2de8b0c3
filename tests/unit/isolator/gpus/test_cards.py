"""The cards of a host from survey to survey, and what their file keeps for the next monitor."""

import json
from pathlib import Path

import pytest

from isolator.gpus.cards import Cards, taken_up
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.policy.gpus.health import RESETS, HealthSettings

ONE, TWO = simulated_gpus(2, "Tesla T4", seed="cards")
SETTINGS = HealthSettings(recheck_s=60)
BOTH = Survey((Reading(ONE), Reading(TWO)), "nvml")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "monitor" / "cards.json"


@pytest.fixture
def cards(path: Path) -> Cards:
    cards = Cards(path, SETTINGS)
    cards.surveyed(BOTH, {}, 1000.0)
    return cards


def health(cards: Cards) -> list[Health]:
    return [gpu.health for gpu in cards.inventory("").gpus]


def test_cards_follow_each_survey_of_the_driver(cards: Cards) -> None:
    assert (health(cards), cards.restless()) == ([Health.OK, Health.OK], False)
    cards.surveyed(Survey((Reading(ONE, xids=(62,)), Reading(TWO)), "nvml"), {}, 1010.0)
    assert (health(cards), cards.restless()) == ([Health.SICK, Health.OK], True)
    cards.surveyed(Survey((Reading(TWO),), "nvml"), {TWO.id: "pid 7"}, 1020.0)
    assert health(cards) == [Health.LOST, Health.DIRTY]
    assert (cards.present(ONE.id), cards.present(TWO.id)) == (False, True)


def test_cards_are_unknown_and_not_lost_where_the_driver_is_gone(cards: Cards) -> None:
    cards.surveyed(Survey(note="no driver"), {}, 1010.0)
    assert health(cards) == [Health.UNKNOWN, Health.UNKNOWN]
    assert cards.inventory("").gpus[0].reason == "probe failed: no driver"
    cards.surveyed(BOTH, {}, 1020.0)
    assert health(cards) == [Health.OK, Health.OK]


def test_cards_of_a_host_that_never_had_a_driver_are_none(path: Path) -> None:
    cards = Cards(path, SETTINGS)
    cards.surveyed(Survey(note="no driver"), {}, 1000.0)
    assert (health(cards), cards.inventory("").source) == ([], "none")


def test_cards_are_kept_for_the_next_monitor(cards: Cards, path: Path) -> None:
    cards.surveyed(Survey((Reading(ONE, row_remapping_failed=True), Reading(TWO)), "nvml"), {}, 1010.0)
    cards.forget(TWO.id)
    later = Cards(path, SETTINGS)
    assert [gpu.id for gpu in later.inventory("").gpus] == [ONE.id]
    later.surveyed(BOTH, {}, 9000.0)
    assert health(later) == [Health.SICK, Health.OK], "only an operator ends that"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cards": 7}', '{"cards": [{}]}'])
def test_cards_whose_file_is_damaged_are_doubted(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    cards = Cards(path, SETTINGS)
    assert path.with_name("cards.json.damaged").read_text() == text
    cards.surveyed(BOTH, {}, 1000.0)
    assert health(cards) == [Health.SUSPECT, Health.SUSPECT]
    for now in (1010.0, 1020.0, 1030.0):
        cards.surveyed(BOTH, {}, now)
    assert health(cards) == [Health.OK, Health.OK]


def test_cards_are_written_only_when_something_changed(cards: Cards, path: Path) -> None:
    before = path.stat()
    cards.surveyed(BOTH, {}, 1000.0)
    assert path.stat().st_ino == before.st_ino
    cards.surveyed(Survey((Reading(ONE, xids=(62,)), Reading(TWO)), "nvml"), {}, 1010.0)
    assert path.stat().st_ino != before.st_ino
    assert len(json.loads(path.read_text())["cards"]) == 2


@pytest.mark.parametrize(("problem", "recheck_at"), [("", 1080.0), ("it is in use", 1070.0)])
def test_cards_are_rechecked_after_a_reset_that_went_well(
    cards: Cards, problem: str, recheck_at: float
) -> None:
    cards.surveyed(Survey((Reading(ONE, xids=(62,)), Reading(TWO)), "nvml"), {}, 1010.0)
    cards.was_reset(ONE.id, "r1", problem, 1020.0)
    record = cards.get(ONE.id)
    assert record is not None
    assert record.recheck_at == recheck_at
    assert record.gpu.history[-1].reason == f"reset r1: {problem or 'done'}"


def test_cards_remember_the_latest_requests_for_resets(cards: Cards) -> None:
    record = cards.get(ONE.id)
    assert record is not None
    for number in range(RESETS + 2):
        record = taken_up(record, f"r{number}")
    assert record.resets == tuple(f"r{number}" for number in range(2, RESETS + 2))
