"""Bugs put into trees of queues on purpose: chaos finds each, and tells it shortly."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import pytest

from mesos_gpu.engine.match import reclaiming
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.tenancy.reclaim import Reclaim
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.simulate.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found

REAL_OVER_LIMIT = Backlog.over_limit


def _gpus_are_counted(patch: pytest.MonkeyPatch) -> None:
    """So many GPUs are enough, on whatever nodes they are."""

    def plan(
        request: Request,
        tasks: int,
        nodes: Sequence[NodeCapacity],
        victims: Mapping[str, Victim],
        *_: Hashable,
    ) -> tuple[Victim, ...] | None:
        held = Counter(each.job_id for node in nodes for each in node.allocations for _ in each.gpus)
        chosen, gpus = [], 0
        for victim in sorted(victims.values(), key=lambda victim: (victim.cost, victim.job_id)):
            if gpus < request.gpu.count * tasks:
                chosen.append(victim)
                gpus += held[victim.job_id]
        return tuple(chosen) if gpus >= request.gpu.count * tasks else None

    patch.setattr(reclaiming, "plan", plan)


def _seats_protect_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reclaim, "_borrowers", property(lambda rule: rule._leaves))


def _notices_are_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notices, "lead_s", lambda turn, job: 0.0)


def _fences_are_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reclaim, "_is_fenced", lambda rule, queue, other: False)


def _limits_above_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    def over_limit(backlog: Backlog, job: Job) -> bool:
        return "/" not in job.spec.queue and REAL_OVER_LIMIT(backlog, job)

    patch.setattr(Backlog, "over_limit", over_limit)


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "GPUs are counted, not looked for on nodes": (_gpus_are_counted, {"every stop helps somebody"}),
    "seats protect nobody": (_seats_protect_nobody, {"nobody within a guarantee is reclaimed"}),
    "notices are shorter than is owed": (_notices_are_short, {"every stop had its notice"}),
    "fences are open": (_fences_are_open, {"nothing is ended without a reason"}),
    "limits of those above do not hold": (
        _limits_above_do_not_hold,
        {"no queue is over its limit at any level"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_a_bug_of_queues_is_found_and_told_shortly(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.QUEUES,))
    assert_found(rules, monkeypatch)


def test_the_engine_holds_with_trees_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.QUEUES,))
    result = chaos.run(1500, 6)
    assert result.failure is None, "\n".join((result.failure.words, *result.failure.story))
    for name in ("QueuesChanged", "GiveNotice", "JobSubmitted"):
        assert result.counts[name], f"{name} never came to pass"
