"""Expressions that take long to compare: they delay only the job that asks for them."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.pattern import cost, problem_of
from mesos_gpu.policy.cluster import verdicts
from mesos_gpu.policy.cluster.verdicts import WORK_IN_ALL, WORK_OF_JOB, MatchCache
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS
from mesos_gpu.wire.jobs import spec_from_mapping
from tests.doubles.builders import World, offer, spec

AGENTS = 30
COSTLY = "(.?){150}.*|N"


def costly(job: int, operator: Operator = Operator.LIKE) -> tuple[Constraint, ...]:
    """Make as many constraints as a job may have; all of them hold everywhere, and no two jobs share one."""
    value = COSTLY if operator is Operator.LIKE else "(.?){150}!"
    return tuple(Constraint("hostname", operator, f"{value}{job}.{i}") for i in range(MAX_CONSTRAINTS))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count comparisons, each with its cost; all texts match, but for a pattern that ends otherwise."""
    done: list[int] = []

    def cost_of(pattern: str, text: str) -> int:
        return cost(COSTLY, text)

    def counted(pattern: str, text: str) -> bool:
        done.append(cost_of(pattern, text))
        return "!" not in pattern

    monkeypatch.setattr(verdicts, "cost", cost_of)
    monkeypatch.setattr(verdicts, "matches", counted)
    return done


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.offers(*(replace(offer(f"o{i}", f"a{i}"), hostname=f"host{i}.example.org") for i in range(AGENTS)))
    return world


def submitted(name: str, **fields: object) -> ev.JobSubmitted:
    return ev.JobSubmitted(JobId(name), spec(**{"cpus": 0.1, "mem_mib": 32, **fields}))


def test_costly_constraint_does_not_hold_up_a_later_job(world: World, work: list[int]) -> None:
    world.feed(
        *(submitted(f"costly{i}", constraints=costly(i)) for i in range(8)),
        submitted("innocent"),
    )
    assert world.job("innocent").task_id
    assert WORK_IN_ALL < sum(work) <= WORK_IN_ALL + 8 * max(work)


def test_costly_constraint_is_compared_with_all_agents_in_the_end(world: World, work: list[int]) -> None:
    """No agent fits, and each pair is compared once."""
    world.feed(
        submitted(
            "never", constraints=(*costly(1, Operator.UNLIKE)[:-1], Constraint("rack", Operator.LIKE, "x"))
        )
    )
    for _ in range(100):
        if not world.state.match.unmatched:
            break
        before = len(work)
        world.feed()
        assert sum(work[before:]) <= WORK_OF_JOB + max(work)
    assert not world.state.match.unmatched
    assert len(work) == (MAX_CONSTRAINTS - 1) * AGENTS
    world.feed(submitted("again", constraints=world.job("never").spec.constraints))
    assert len(work) == (MAX_CONSTRAINTS - 1) * AGENTS, "what is known is not compared again"


@pytest.mark.usefixtures("work")
def test_costly_job_starts_as_soon_as_one_agent_is_known_to_do(world: World) -> None:
    world.feed(submitted("costly", constraints=costly(1)))
    for _ in range(20):
        if world.job("costly").task_id:
            break
        world.feed()
    assert world.job("costly").task_id


def test_explanation_reports_a_costly_constraint_still_to_be_compared(world: World, work: list[int]) -> None:
    world.feed(submitted("never", constraints=costly(1), cpus=1000.0))
    why = explain_job(View(world.state, world.settings, world.now), JobId("never"))
    assert "not been compared with this agent yet" in str(why)
    before = dict(world.state.match.verdicts)
    explain_job(View(world.state, world.settings, world.now), JobId("never"))
    assert world.state.match.verdicts == before, "a reader changes nothing"


def test_verdicts_on_constraints_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MAX_KNOWN", 2)
    known = {("a", "a"): True, ("b", "b"): True, ("c", "c"): True}
    assert MatchCache(known)("d", "d") is True
    assert known == {("d", "d"): True}


def test_constraint_expressions_too_large_or_too_many_are_refused() -> None:
    assert problem_of("(.?){300}.*|N") == "it is too large"
    problems = spec_from_mapping({"command": "true", "constraints": [["hostname", "UNIQUE"]] * 17})
    assert isinstance(problems, list)
    assert "at most 16 constraints" in str(problems[0])
