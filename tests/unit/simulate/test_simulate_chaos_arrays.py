"""Chaos with job arrays: the engine holds, and bugs put in on purpose are found."""

from collections.abc import Callable

import pytest

from mesos_gpu.engine.indexes.arrays import Members
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from tests.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs


@pytest.fixture(autouse=True)
def _arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.ARRAYS,))


@runs(1500)
def test_chaos_of_arrays_finds_no_violation(steps: int) -> None:
    assert_holds(steps, 3, "ArrayKillRequested")


# --- bugs put in on purpose


def _a_restart_forgets_what_runs(patch: pytest.MonkeyPatch) -> None:
    """Only members that were made since the start count against the limit."""
    made = set[JobId]()
    draft, restored = State.draft, State.restored

    def drafted(state: State, array: JobArray, position: int) -> Job:
        job = draft(state, array, position)
        made.add(job.id)
        return job

    def anew(*saved: object) -> State:
        made.clear()
        return restored(*saved)  # type: ignore[arg-type]

    def slots(members: Members, array: JobArray) -> int | None:
        at_once, here = array.indexes.at_once, members.jobs.get(array.id, {})
        return None if at_once is None else max(at_once - len(made & here.keys()), 0)

    patch.setattr(State, "draft", drafted)
    patch.setattr(State, "restored", staticmethod(anew))
    patch.setattr(Members, "slots", slots)


def _a_launch_leaves_its_index_to_be_made(patch: pytest.MonkeyPatch) -> None:
    """What has ended is not taken out of what is left."""

    def note(turn: Turn, job: Job) -> bool:
        turn.state.work.members.take_up(job)
        return False

    patch.setattr(Turn, "_note_member", note)


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "a limit is passed after a restart": (
        _a_restart_forgets_what_runs,
        {"no more of an array run at once than it says"},
    ),
    "an index is made again": (
        _a_launch_leaves_its_index_to_be_made,
        {"no task id is used twice", "no job runs twice"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_arrays_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert_found(rules, monkeypatch)
