"""Every pair of task states is decided, and the decisions keep what users were promised."""

import itertools

import pytest

from mesos_gpu.model.tasks.task import ENDED, LIVE, TABLE, Action, TaskState, actions_of

S, A = TaskState, Action
ILLEGAL = {(old, S.ABSENT) for old in S} | {
    (old, S.ABANDONED) for old in S if old not in (S.UNREACHABLE, S.ABANDONED)
}
ILLEGAL |= {(S.ABANDONED, S.ABSENT)}
ILLEGAL -= {(S.ABSENT, S.ABSENT)}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(S, S)))
def test_life_cycle_decides_every_pair_of_states(old: TaskState, new: TaskState) -> None:
    if (old, new) in ILLEGAL:
        assert actions_of(old, new) is None, "nothing may become that"
    elif old is new:
        assert actions_of(old, new) == ()
    else:
        assert (old, new) in TABLE, "Mesos may send this: the table must say what follows"


@pytest.mark.parametrize("old", LIVE)
@pytest.mark.parametrize("new", ENDED)
def test_task_end_is_saved_first_frees_the_gpus_and_decides_the_job_once(
    old: TaskState, new: TaskState
) -> None:
    actions = actions_of(old, new)
    assert actions is not None
    assert actions[:2] == (A.SAVE, A.FREE)
    assert len(set(actions) & {A.COMPLETE, A.CANCEL, A.RETRY, A.REQUEUE}) == 1


def test_requeue_without_an_attempt_is_for_the_infrastructure_alone() -> None:
    requeue = {pair for pair, actions in TABLE.items() if A.REQUEUE in actions}
    assert {new for _, new in requeue} == {S.LOST, S.ABANDONED}


def test_abandoned_launch_never_decides_its_job_again() -> None:
    for new in S:
        actions = actions_of(S.ABANDONED, new) or ()
        assert not set(actions) & {A.COMPLETE, A.CANCEL, A.RETRY, A.REQUEUE}


@pytest.mark.parametrize("old", [S.ABANDONED, S.LOST])
@pytest.mark.parametrize("new", [S.LAUNCHED, S.STARTING, S.RUNNING, S.KILLING])
def test_task_that_must_not_run_is_killed(old: TaskState, new: TaskState) -> None:
    assert actions_of(old, new) == (A.KILL,)


@pytest.mark.parametrize("new", [S.LAUNCHED, S.STARTING, S.RUNNING, S.KILLING])
def test_unknown_task_is_held_by_the_life_cycle(new: TaskState) -> None:
    assert actions_of(S.ABSENT, new) == (A.HOLD,)


def test_task_updates_that_are_late_change_nothing() -> None:
    for old, new in itertools.product((S.FINISHED, S.FAILED, S.KILLED), S):
        assert actions_of(old, new) in ((), None)
    assert actions_of(S.RUNNING, S.STARTING) == ()
