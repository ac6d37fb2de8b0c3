"""An array's record says what becomes of its members; and how many drafts it may have."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.arrays.making import following, forget_old, on_matched
from mesos_gpu.engine.indexes.arrays import MAX_DRAFTS, overlaps
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.saves import ForgetArray, SaveArray
from tests.doubles.builders import every, spec

ID = JobId("sweep-0a1b")


def made(array: str = "0-9", drafts: int = 2, **fields: Any) -> Turn:
    """An array of which nothing has started, with so many drafts."""
    state = State(0.0)
    known = JobArray(ID, spec(name="sweep", array=array), 0.0, 1)
    state.put(replace(known, left=known.indexes.all, **fields))
    for position in range(drafts):
        state.draft(state.work.arrays[ID], position)
    return Turn(state, Settings.of("executor", "monitor", keep_ended_jobs=1), 1000.0)


def member(turn: Turn, index: int, state: JobState) -> Job:
    job = turn.state.work.jobs[JobId(f"sweep.{index}-0a1b")]
    return turn.show_job(replace(job, state=state))


def test_member_that_starts_is_left_no_more() -> None:
    turn = made()
    member(turn, 1, JobState.STARTING)
    assert (turn.state.work.arrays[ID].left, turn.state.work.arrays[ID].version) == (((0, 0), (2, 9)), 2)
    assert turn.state.work.members.drafts == {ID: {JobId("sweep.0-0a1b"): 0}}
    assert turn.state.work.members.launched == {ID: None}
    assert [each.job_id for each in every(turn.effects, fx.Publish)] == ["sweep.1-0a1b", ID]
    assert every(turn.effects, SaveArray)[-1].array == turn.state.work.arrays[ID]
    turn.effects.clear()
    member(turn, 1, JobState.RUNNING)
    assert [each.job_id for each in every(turn.effects, fx.Publish)] == ["sweep.1-0a1b"], (
        "the array is as it was"
    )
    assert every(turn.effects, SaveArray) == []


@pytest.mark.parametrize("end", [JobState.FINISHED, JobState.FAILED, JobState.KILLED])
def test_end_of_a_member_is_counted_once(end: JobState) -> None:
    turn = made()
    member(turn, 0, JobState.RUNNING)
    member(turn, 0, end)
    array = turn.state.work.arrays[ID]
    assert getattr(array, end.value) == ((0, 0),)
    assert turn.state.work.members.windows == {ID: 2}, "one has ended: one more may be tried"
    member(turn, 0, end)
    assert turn.state.work.arrays[ID] == array
    assert turn.state.work.members.windows == {ID: 2}


@pytest.mark.parametrize(
    ("drafts", "launched", "window", "then"),
    [
        (0, True, None, 2),
        (0, True, 3, 6),
        (0, True, MAX_DRAFTS - 1, MAX_DRAFTS),
        (0, False, 3, 3),
        (1, True, 3, None),
        (1, False, 3, None),
    ],
)
def test_array_has_twice_as_many_drafts_if_all_were_launched(
    drafts: int, launched: bool, window: int | None, then: int | None
) -> None:
    turn = made(drafts=drafts)
    members = turn.state.work.members
    members.changed.clear()
    members.launched = {ID: None} if launched else {}
    members.windows = {} if window is None else {ID: window}
    on_matched(turn)
    assert members.windows == ({} if then is None else {ID: then})
    assert members.launched == {}
    assert (ID in members.changed) is (not drafts and launched)


def test_first_draft_of_an_array_stays() -> None:
    turn = made(drafts=3)
    on_matched(turn)
    assert turn.state.work.members.drafts == {ID: {JobId("sweep.0-0a1b"): 0}}
    assert list(turn.state.work.jobs) == ["sweep.0-0a1b"]


@pytest.mark.parametrize(
    ("array", "live", "drafts", "position"),
    [("0-9", 0, 0, 0), ("0-9", 2, 0, 2), ("0-9", 2, 1, None), ("0-9%2", 2, 0, None), ("0-9%3", 2, 0, 2)],
)
def test_next_draft_follows_a_member_if_the_limit_has_room(
    array: str, live: int, drafts: int, position: int | None
) -> None:
    turn = made(array, drafts=live + drafts)
    for index in range(live):
        member(turn, index, JobState.RUNNING)
    job = turn.state.work.arrays[ID].member(0)
    draft = following(turn, job)
    assert draft == (None if position is None else turn.state.work.arrays[ID].member(position))
    assert following(turn, replace(job, array=None)) is None


@pytest.mark.parametrize(
    ("ended", "remembered", "forgotten"), [(1, False, []), (3, False, [0, 1]), (3, True, [1])]
)
def test_arrays_that_ended_first_are_forgotten(ended: int, remembered: bool, forgotten: list[int]) -> None:
    turn = made()
    ids = [JobId(f"a{number}-1") for number in range(ended)]
    for id in ids:
        turn.state.put(JobArray(id, spec(array="0"), 0.0, 1, ended_at=5.0))
    if remembered:
        turn.state.put(Job(JobId("m"), spec(), 0.0, 9, JobState.FINISHED, array=ids[0], index=0))
    forget_old(turn)
    gone = [ids[number] for number in forgotten]
    assert every(turn.effects, ForgetArray) == [ForgetArray(id) for id in gone]
    assert list(turn.state.work.arrays) == [ID, *(id for id in ids if id not in gone)]


def test_array_whose_sets_overlap_is_known() -> None:
    array = JobArray(
        ID, spec(array="0-9"), 0.0, 1, left=((0, 3),), finished=((4, 5),), failed=((6, 6),), killed=((7, 9),)
    )
    assert not overlaps(array)
    for name in ("left", "finished", "failed", "killed"):
        assert overlaps(replace(array, **{name: ((0, 9),)}))  # type: ignore[arg-type]
