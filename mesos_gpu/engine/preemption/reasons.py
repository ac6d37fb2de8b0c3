"""Reasons that jobs get when they make room for other jobs."""

from typing import Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.room.knapsack import Victim

_WHOLE_H: Final = 100.0  # hours from which on decimals are left out


def is_reclaimed(rule: Reclaim, job: Job, victim: Victim) -> bool:
    """Return whether a victim is ended for a job by what queues are due, and not by its priority."""
    runner = rule.running.runner_of(victim.job_id)
    return runner.leaf != leaf_of(rule.seating.tree, job) or not rule.comes_before(job, runner.job)


def reason_of(rule: Reclaim, job: Job, victim: Victim) -> str:
    """Return the reason of the end of a victim: the job, the rule that allows it, and the lost work."""
    runner, seat = rule.running.runner_of(victim.job_id), rule.seating.seat_for(job)
    if not is_reclaimed(rule, job, victim):
        why = f"whose priority is {job.priority}, not {runner.job.priority}"
        if runner.job.priority >= job.priority:
            why = f"which has had less GPU time in queue {job.spec.queue}"
    elif seat is not None:
        why = f"to which queue {seat.queue} guarantees the GPUs that it had borrowed"
    else:
        why = (
            f"whose queue {job.spec.queue} has less of its fair share than {runner.leaf}, and still will have"
        )
    return f"makes room for job {job.id}, {why}; it loses {_lost_words(rule, victim)} of work"


def reason_of_move(rule: Reclaim, job: Job, victim: Victim, hostname: str) -> str:
    """Return the reason of a move of a victim to another host, which makes room for a job on one node."""
    lost = _lost_words(rule, victim)
    return f"goes to {hostname}, so that job {job.id} has room on one node; it loses {lost} of work"


def _lost_words(rule: Reclaim, victim: Victim) -> str:
    """Return the work that a victim loses, in words."""
    hours = rule.running.lost_gpu_h(victim.job_id)
    return f"{hours:.0f} GPU-h" if hours >= _WHOLE_H else f"{hours:.3g} GPU-h"
