"""The judge of a soak: what tasks wrote against what was asked for."""

from dataclasses import replace

import pytest

from tests.soak.evidence import Line
from tests.soak.judge import Told, Verdict, judge
from tests.soak.load import Excuse, Item

pytestmark = pytest.mark.on_change("soak")

CARD = "GPU-1"


def item(number: int = 1, state: str = "finished", unwanted: bool = False, **request: object) -> Item:
    return Item(number, "job", dict(request), 0.0, f"w{number}-x", state, unwanted)


def line(word: str, at: float = 10.0, number: int = 1, rank: int = 0, launch: int = 1) -> Line:
    return Line(word, at, number, rank, f"w{number}-x.{launch}", (CARD,))


def kinds(verdict: Verdict) -> list[str]:
    return [finding.what for finding in verdict.findings]


ONCE = [line("begin", 9), line("end", 10)]
TWICE = [*ONCE, line("begin", 12, launch=2), line("end", 13, launch=2)]


def test_judge_accepts_work_that_was_done_once() -> None:
    verdict = judge([item()], ONCE, [])
    assert (kinds(verdict), verdict.done, verdict.again) == ([], 1, {})


@pytest.mark.parametrize("state", ["", "failed", "killed", "lost"])
def test_judge_counts_unfinished_work_as_lost(state: str) -> None:
    assert kinds(judge([item(state=state)], ONCE, [])) == ["lost"]


def test_judge_counts_finished_work_without_evidence_as_lost() -> None:
    assert kinds(judge([item()], [line("begin")], [])) == ["lost"]


def test_judge_needs_evidence_of_each_member_of_a_gang() -> None:
    gang = item(tasks=2)
    assert kinds(judge([gang], [line("end"), line("end", rank=1)], [])) == []
    assert kinds(judge([gang], [line("end"), line("end", 12, launch=2)], [])) == ["lost", "doubled"]


def test_judge_needs_an_excuse_for_work_that_was_done_twice() -> None:
    assert kinds(judge([item()], TWICE, [])) == ["doubled"]
    assert kinds(judge([item()], TWICE, [Excuse(10, 10, frozenset({"w9-x.1"}))])) == ["doubled"]
    late = Excuse(50, 60, cards=frozenset({CARD}))
    other = Excuse(10, 10, cards=frozenset({"GPU-2"}))
    assert kinds(judge([item()], TWICE, [late, other])) == ["doubled"]


@pytest.mark.parametrize(
    ("excuse", "reason"),
    [
        (Excuse(10, 10, frozenset({"w1-x.1"})), "executor killed"),
        (Excuse(11, 12, cards=frozenset({CARD})), "drained or sick"),
    ],
)
def test_judge_counts_work_whose_end_was_unknown(excuse: Excuse, reason: str) -> None:
    verdict = judge([item()], TWICE, [excuse])
    assert (kinds(verdict), verdict.again) == ([], {reason: 1})
    knew = {"w1-x.1": Told("TASK_FINISHED")}
    assert kinds(judge([item()], TWICE, [excuse], knew)) == ["doubled"], "Mesos knew that it was done"


def test_judge_takes_a_card_lost_before_the_end_as_no_excuse_for_later_work() -> None:
    lines = [line("begin", 9), line("end", 40), line("end", 50, launch=2)]
    assert kinds(judge([item()], lines, [Excuse(9, 9, cards=frozenset({CARD}))])) == ["doubled"]


def test_judge_excuses_unreported_work_of_a_wiped_host() -> None:
    lines = [replace(each, host="10.0.0.1") for each in TWICE]
    assert kinds(judge([item()], lines, [Excuse(30, 31, wiped="10.0.0.1")])) == []
    assert kinds(judge([item()], lines, [Excuse(30, 31, wiped="10.0.0.2")])) == ["doubled"]
    assert kinds(judge([item()], lines, [Excuse(-40, -41, wiped="10.0.0.1")])) == ["doubled"]
    assert kinds(judge([item()], lines, [Excuse(60, 61, wiped="10.0.0.1")])) == ["doubled"]
    assert kinds(judge([item()], TWICE, [Excuse(30, 31)])) == ["doubled"]


def test_judge_excuses_work_without_a_card_by_a_drain() -> None:
    lines = [replace(each, cards=(), host="10.0.0.1") for each in TWICE]
    for host, wrong in (("10.0.0.1", []), ("10.0.0.2", ["doubled"]), ("", ["doubled"])):
        drain = Excuse(11, 12, cards=frozenset({CARD}), drained=host)
        assert kinds(judge([item()], lines, [drain])) == wrong
    assert kinds(judge([item()], [replace(each, host="") for each in lines], [Excuse(11, 12)])) == ["doubled"]


def test_judge_excuses_preempted_work_unless_it_was_known_to_be_done() -> None:
    preemptible = item(preemptible=True)
    assert kinds(judge([preemptible], TWICE, [])) == ["doubled"], "nobody ended it"
    verdict = judge([preemptible], TWICE, [], {"w1-x.1": Told("TASK_KILLED", made_room=True)})
    assert (kinds(verdict), verdict.again) == ([], {"made room": 1})
    assert kinds(judge([preemptible], TWICE, [], {"w1-x.2": Told("TASK_KILLED", True)})) == ["doubled"]
    assert kinds(judge([preemptible], TWICE, [], {"w1-x.1": Told("TASK_FINISHED", True)})) == ["doubled"]


def test_judge_excuses_a_gang_by_the_end_of_one_member() -> None:
    gang = item(tasks=2)
    done, other = [replace(line("end"), task="w1-x.1.0")], replace(line("begin", rank=1), task="w1-x.1.1")
    again = [replace(line("end", 20, rank=rank), task=f"w1-x.2.{rank}") for rank in (0, 1)]
    told = {"w1-x.1.0": Told("TASK_FINISHED")}
    made_room = {**told, "w1-x.1.1": Told("TASK_KILLED", made_room=True)}
    assert kinds(judge([gang], [*done, other, *again], [], made_room)) == []
    assert kinds(judge([gang], [*done, other, *again], [], told)) == ["doubled"]
    elsewhere = replace(other, cards=("GPU-2",))
    drained = Excuse(12, 13, cards=frozenset({"GPU-2"}))
    assert kinds(judge([gang], [*done, elsewhere, *again], [drained], told)) == []


def test_judge_finds_a_card_with_two_owners() -> None:
    assert kinds(judge([item()], [*ONCE, line("double")], [])) == ["card"]
    assert kinds(judge([], [line("double", number=0)], [])) == ["card"]


def test_judge_has_no_excuse_for_work_that_ran_twice_at_once() -> None:
    excuse = Excuse(10, 10, frozenset({"w1-x.1"}))
    assert kinds(judge([item()], [*ONCE, line("twice")], [excuse])) == ["doubled"]


def test_judge_accepts_either_end_of_unwanted_work() -> None:
    for state, wrong in (("killed", []), ("finished", []), ("failed", ["lost"]), ("", ["lost"])):
        assert kinds(judge([item(state=state, unwanted=True)], [line("begin")], [])) == wrong


def test_judge_counts_an_unaccepted_request_as_lost_only_if_it_ran() -> None:
    never = replace(item(state=""), job="")
    assert kinds(judge([never], [], [])) == []
    assert kinds(judge([never], ONCE, [])) == ["lost"]


def test_judge_excuses_a_gang_whose_member_was_killed_before_it_began() -> None:
    gang = item(tasks=2)
    first = [replace(line("end"), task="w1-x.1.0")]
    again = [replace(line("end", 20, rank=rank), task=f"w1-x.2.{rank}") for rank in (0, 1)]
    assert kinds(judge([gang], [*first, *again], [Excuse(9, 9, frozenset({"w1-x.1.1"}))])) == []
    other = Excuse(9, 9, frozenset({"w1-x.3.1"}))
    assert kinds(judge([gang], [*first, *again], [other])) == ["doubled"], "of another launch"
    single = [line("end"), line("end", 12, launch=2)]
    assert kinds(judge([item()], single, [Excuse(9, 9, frozenset({"w1-x.3"}))])) == ["doubled"]


BROKEN = [line("begin", 9), line("begin", 12, launch=2), line("end", 13, launch=2)]


def test_judge_of_a_quiet_story_finds_disturbed_tasks() -> None:
    assert kinds(judge([item()], BROKEN, [], quiet=True)) == ["disturbed"]
    assert kinds(judge([item()], BROKEN, [], quiet=False)) == []
    assert kinds(judge([item()], ONCE, [], quiet=True)) == []
    assert kinds(judge([item(preemptible=True)], BROKEN, [], quiet=True)) == [], "others may have its place"
    assert kinds(judge([item(state="killed", unwanted=True)], BROKEN[:1], [], quiet=True)) == []
    for begin, card, wrong in ((9, CARD, []), (9, "GPU-2", ["disturbed"])):
        excuse = Excuse(begin, begin + 2, cards=frozenset({card}))
        assert kinds(judge([item()], BROKEN, [excuse], quiet=True)) == wrong
