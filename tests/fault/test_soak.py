"""A soak in small: faults under load leave all work done once, and what is planted wrong is found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.acts import Act, Story
from tests.soak.epoch import NOTHING, Epoch, Outcome
from tests.soak.rig import Rig

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("soak"), pytest.mark.timeout(400)]
CLEAN_S = 2.0  # where something is known to be left


class Player:
    """Plays stories on one cluster."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self._first = rig, 1

    def play(self, *acts: Act, clean_s: float = Epoch.clean_s) -> Outcome:
        epoch = Epoch(self.rig, Story(1, 1, True, acts), self._first, print)
        epoch.clean_s = clean_s
        outcome = epoch.run()
        self._first = epoch.load.next_number
        return outcome


@pytest.fixture(scope="module")
def player(open_directory: Path) -> Iterator[Player]:
    with Rig(open_directory, small=True) as rig:
        yield Player(rig)


def kinds(outcome: Outcome) -> set[str]:
    return {finding.what for finding in outcome.verdict.findings}


def test_soak_kills_under_load_lose_nothing_and_do_nothing_twice(player: Player) -> None:
    load = [
        Act(kind, 5 * at, at / 2) for at, kind in enumerate(["job", "share", "gang", "app", "job", "endless"])
    ]
    kills = [Act("kill scheduler", 1, 2.6), Act("kill executor", 2, 2.8), Act("kill agent", 3, 4.5)]
    outcome = player.play(*load, *kills)
    assert outcome.verdict.findings == []
    assert [shot.act.kind for shot in outcome.shots if shot.act.kind != NOTHING] == [
        kill.kind for kill in kills
    ]
    assert outcome.verdict.done >= 4 + len(kills), "the jobs, and a probe after each kill"


def test_soak_finds_a_card_with_two_owners(player: Player) -> None:
    """Who holds the first card is no task: whoever is given it next cannot lock it."""
    outcome = player.play(Act("planted double", 0, 0.0), Act("burst", 1, 0.5))
    assert "card" in kinds(outcome), outcome.verdict


def test_soak_finds_work_that_is_lost(player: Player) -> None:
    assert kinds(player.play(Act("planted lost", 0, 0.0))) == {"lost"}


def test_soak_finds_work_that_was_repeated_also_beside_a_drain(player: Player) -> None:
    """Others may displace it, and another node is drained meanwhile: neither is why it was done again."""
    outcome = player.play(Act("planted again", 0, 0.0), Act("drain", 2, 0.1, 1.0))
    assert kinds(outcome) == {"doubled"}, outcome.verdict


@pytest.mark.parametrize("what", ["process", "cgroup"])
def test_soak_finds_processes_and_cgroups_that_a_task_left(player: Player, what: str) -> None:
    outcome = player.play(Act(f"planted {what}", 0, 0.0), clean_s=CLEAN_S)
    assert kinds(outcome) == {"left"}
    assert [finding.text.partition(":")[0] for finding in outcome.verdict.findings] == [what]
