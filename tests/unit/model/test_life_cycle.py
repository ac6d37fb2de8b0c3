"""Every pair of task states is decided, and the decisions keep what users were promised."""

import itertools

from mesos_gpu.model.tasks.task import ENDED, LIVE, TABLE, Action, TaskState, actions_of

S, A = TaskState, Action
UP = (S.LAUNCHED, S.STARTING, S.RUNNING, S.KILLING)
ILLEGAL = {(old, S.ABSENT) for old in S} | {
    (old, S.ABANDONED) for old in S if old not in (S.UNREACHABLE, S.ABANDONED)
}
ILLEGAL |= {(S.ABANDONED, S.ABSENT)}
ILLEGAL -= {(S.ABSENT, S.ABSENT)}


def test_life_cycle_decides_every_pair_of_states() -> None:
    """Mesos may send any pair that is not illegal: the table must say what follows."""
    wrong = [
        (old.name, new.name, actions_of(old, new))
        for old, new in itertools.product(S, S)
        if not decided(old, new)
    ]
    assert not wrong


def decided(old: TaskState, new: TaskState) -> bool:
    """Return whether the table says what it must say of a pair: nothing of an illegal one."""
    if (old, new) in ILLEGAL:
        return actions_of(old, new) is None
    return actions_of(old, new) == () if old is new else (old, new) in TABLE


def test_task_end_is_saved_first_frees_the_gpus_and_decides_the_job_once() -> None:
    for old, new in itertools.product(LIVE, ENDED):
        actions = actions_of(old, new) or ()
        assert actions[:2] == (A.SAVE, A.FREE), (old, new)
        assert len(set(actions) & {A.COMPLETE, A.CANCEL, A.RETRY, A.REQUEUE}) == 1, (old, new)


def test_requeue_without_an_attempt_is_for_the_infrastructure_alone() -> None:
    requeue = {pair for pair, actions in TABLE.items() if A.REQUEUE in actions}
    assert {new for _, new in requeue} == {S.LOST, S.ABANDONED}


def test_abandoned_launch_never_decides_its_job_again() -> None:
    for new in S:
        actions = actions_of(S.ABANDONED, new) or ()
        assert not set(actions) & {A.COMPLETE, A.CANCEL, A.RETRY, A.REQUEUE}


def test_task_that_must_not_run_is_killed() -> None:
    for old, new in itertools.product((S.ABANDONED, S.LOST), UP):
        assert actions_of(old, new) == (A.KILL,), (old, new)


def test_unknown_task_is_held_by_the_life_cycle() -> None:
    assert {new: actions_of(S.ABSENT, new) for new in UP} == dict.fromkeys(UP, (A.HOLD,))


def test_task_updates_that_are_late_change_nothing() -> None:
    for old, new in itertools.product((S.FINISHED, S.FAILED, S.KILLED), S):
        assert actions_of(old, new) in ((), None)
    assert actions_of(S.RUNNING, S.STARTING) == ()
