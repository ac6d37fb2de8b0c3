"""Stories of a soak: they come from their seed alone, are kept as files, and are made shorter."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.soak.__main__ import faults_of
from tests.soak.acts import DOWN, FAULTS, KILLS, LOAD, SMALL, Act, Plan, Story, story_of
from tests.soak.epoch import Outcome, Shot, tally_up
from tests.soak.faults import Injected
from tests.soak.judge import Finding, Verdict
from tests.soak.load import Item, Load
from tests.soak.shrink import shrink
from tests.soak.tally import Tally, quantile

pytestmark = pytest.mark.on_change("soak")


def test_a_story_follows_from_its_seed_and_epoch() -> None:
    plan = Plan(lasts_s=300)
    story = story_of(7, 3, plan, small=False)
    assert story == story_of(7, 3, plan, small=False)
    assert story.acts != story_of(7, 4, plan, small=False).acts
    assert story.acts != story_of(8, 3, plan, small=False).acts
    assert [act.at_s for act in story.acts] == sorted(act.at_s for act in story.acts)
    assert all(act.at_s < 300 for act in story.acts)


def test_story_has_every_kind_and_kills_each_process_often_enough() -> None:
    plan, often = Plan(), Counter[str]()
    for epoch in range(1, 13):
        for act in story_of(2, epoch, plan, False, often).acts:
            often[act.kind] += KILLS.get(act.kind, 1)
    assert often.keys() == {*LOAD, *FAULTS}
    assert often[DOWN] == 3
    assert all(often[kind] >= 50 for kind in KILLS), often


def test_story_of_one_machine_kills_only_its_processes() -> None:
    acts = story_of(1, 1, Plan(lasts_s=600, faults=SMALL), small=True).acts
    assert {act.kind for act in acts} == {*LOAD, *SMALL}


def test_story_faults_that_a_machine_lacks_are_refused_by_name() -> None:
    assert faults_of("kill agent", small=True) == ("kill agent",)
    assert faults_of("reboot agent,kill agent", small=False) == ("reboot agent", "kill agent")
    for names, small in (("reboot agent", True), ("clock sun", False)):
        with pytest.raises(SystemExit, match=f"--faults: {names}: choose of kill scheduler, "):
            faults_of(names, small)


def test_story_without_a_number_of_kills_has_each_kind() -> None:
    acts = [act for epoch in (1, 2, 3) for act in story_of(1, epoch, Plan(lasts_s=600, times=0), False).acts]
    assert {act.kind for act in acts} >= {*KILLS}


def test_story_kills_a_seldom_killed_process_more_often() -> None:
    so_far = dict.fromkeys(KILLS, 50) | {"kill keeper": 0}
    kills = Counter(act.kind for act in story_of(1, 3, Plan(), False, so_far).acts if act.kind in KILLS)
    assert kills.most_common(1)[0][0] == "kill keeper"


def test_story_faults_come_one_at_a_time_or_in_bursts() -> None:
    alone, many = (story_of(1, epoch, Plan(), small=False) for epoch in (1, 3))
    assert (alone.alone, many.alone) == (True, False)
    assert alone.with_acts(alone.acts[:3]).alone, "also in a story that was made shorter"
    at_once = [Counter(act.at_s for act in story.acts if act.kind in KILLS) for story in (alone, many)]
    assert (max(at_once[0].values()), max(at_once[1].values())) == (1, 4)
    several = Counter((act.at_s, act.kind) for act in many.acts if act.kind in KILLS)
    assert max(several.values()) == 1, "of several kinds"


def test_story_has_no_other_fault_while_zookeeper_is_down() -> None:
    acts = story_of(1, 4, Plan(), small=False).acts
    [down] = [act for act in acts if act.kind == DOWN]
    assert down.lasts_s == 60
    assert [act for act in acts if act.kind in FAULTS and act.at_s > down.at_s] == []
    assert [act for act in acts if act.kind in LOAD and act.at_s > down.at_s]


def test_a_story_is_read_as_it_was_written(tmp_path: Path) -> None:
    story = story_of(5, 2, Plan(), small=True)
    story.save(tmp_path / "story")
    assert Story.load(tmp_path / "story") == story


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1, "seed": 1, "epoch": 1, "small": true, "acts": []}',
        '{"version": 2, "seed": 1, "epoch": 1, "small": true, "acts": [{"kind": "pray", "pick": 1, "at_s": 0}]}',
        '{"version": 2, "seed": 1, "epoch": 1, "small": true, "acts": [{"kind": "job"}]}',
    ],
    ids=["empty", "list", "version", "kind", "field"],
)
def test_story_file_of_another_form_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "story").write_text(text)
    with pytest.raises(ValueError, match="story is no story of a soak"):
        Story.load(tmp_path / "story")


@pytest.mark.parametrize("guilty", [{3}, {0, 19}, {4, 5, 6}, {1, 7, 13}], ids=str)
def test_shrink_keeps_only_the_guilty_acts(guilty: set[int]) -> None:
    acts = [Act("job", number, float(number)) for number in range(20)]
    played: list[Sequence[Act]] = []

    def fails(candidate: Sequence[Act]) -> bool:
        played.append(candidate)
        return guilty <= {act.pick for act in candidate}

    short, runs = shrink(acts, fails, 1000)
    assert {act.pick for act in short} == guilty
    assert [act.at_s for act in short] == sorted(act.at_s for act in short)
    assert runs == len(played)


def test_shrink_uses_no_more_clusters_than_allowed() -> None:
    acts = [Act("job", number, float(number)) for number in range(64)]
    played: list[Sequence[Act]] = []

    def fails(candidate: Sequence[Act]) -> bool:
        played.append(candidate)
        return {5, 60} <= {act.pick for act in candidate}

    short, runs = shrink(acts, fails, 7)
    assert (runs, len(played)) == (7, 7)
    assert {5, 60} <= {act.pick for act in short}


def test_shrink_keeps_a_story_that_never_fails_again() -> None:
    acts = [Act("job", number, float(number)) for number in range(5)]
    assert shrink(acts, lambda _: False, 100)[0] == acts


def test_tally_quantiles_are_measured_values() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2
    assert quantile([float(value) for value in range(1, 201)], 0.99) == 198


def test_tally_table_has_a_line_for_each_fault() -> None:
    again = Counter({"executor killed": 3})
    tally = Tally(epochs=2, asked=9, done=9, again=again, switches={"masters": 4}, deposed=2)
    row = tally.row("kill agent")
    row.times, row.tasks, row.recovery_s = 3, 12, [1.0, 2.0, 9.0]
    lines = tally.text().splitlines()
    assert lines[1].split() == ["kill", "agent", "3", "12", "0", "0", "0", "3", "2.0", "9.0", "0", "-", "-"]
    assert lines[-1].endswith("switches of leaders: 4 of masters; 2 schedulers that lived were deposed")
    assert tally.as_json()["rows"]["kill agent"]["p50_s"] == 2
    assert json.loads(json.dumps(tally.as_json()))["again"] == again
    assert "3 tasks of them again, 3 executor killed" in tally.text()


def test_tally_counts_findings_for_the_faults_after_the_request() -> None:
    load = Load.__new__(Load)
    load.items, load.taken = [Item(1, "job", {}, 10.0), Item(2, "job", {}, 30.0)], 0
    shots = [
        Shot(Act(kind, 0, 0.0), Injected(kind), at, 1, at)
        for kind, at in (("kill agent", 20.0), ("slow", 40.0))
    ]
    outcome = Outcome(Verdict([Finding("lost", "", 2), Finding("doubled", "", 1)]), shots, 2)
    tally = Tally()
    tally_up(tally, outcome, load, {})
    assert (tally.lost, tally.doubled) == (1, 1)
    assert [(row.lost, row.doubled) for row in tally.rows.values()] == [(0, 1), (1, 1)]


def test_tally_counts_a_recovery_as_alone_if_no_other_fault_was_near() -> None:
    load = Load.__new__(Load)
    load.items, load.taken = [], 0
    probes = [Item(number, "probe", {}, 0.0) for number in (1, 2, 3)]
    shots = [
        Shot(Act("kill agent", 0, 0.0), Injected(""), at, 1, at, probe)
        for at, probe in zip((10.0, 11.0, 40.0), probes, strict=True)
    ]
    tally = Tally()
    tally_up(tally, Outcome(Verdict(), shots), load, {1: 14.0, 2: 15.0, 3: 42.0})
    row = tally.row("kill agent")
    assert (row.recovery_s, row.among_others_s) == ([2.0], [4.0, 4.0])
