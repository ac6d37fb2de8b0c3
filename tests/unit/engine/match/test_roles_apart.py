"""Several roles of Mesos: what is offered to one is used for the jobs of its queues only, and no launch mixes two."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.scheduler.options import parse
from mesos_gpu.wire.mesos.reservations import role_of
from tests.doubles.builders import World, gpu, offer, only, spec
from tests.unit.engine.gpus.test_covers import QUARTER, run, shared
from tests.unit.policy.queueing.test_queue import world

CARDS = tuple(gpu(f"g{n}") for n in range(4))


def two_roles(*cards: Gpu, **settings: Any) -> World:
    """An agent of four GPUs that has a monitor and offers nothing."""
    made = world(agents=0, role="gpu", role_of={"prod": "gpu-prod"}, **settings)
    given = made.offers(to("gpu", "first", gpus=4))
    made.report("a1", *(cards or CARDS), task=only(given, fx.Launch).tasks[0].task.id)
    return made


def to(role: str, name: str, **amounts: Any) -> Offer:
    return replace(offer(name, **amounts), role=role)


def launched(effects: Sequence[fx.Effect]) -> list[tuple[list[str], list[str]]]:
    """List the offers and the jobs of each launch."""
    launches = [each for each in effects if isinstance(each, fx.Launch)]
    return [(list(each.offer_ids), [str(item.task.job_id) for item in each.tasks]) for each in launches]


def asked(effects: Sequence[fx.Effect]) -> list[fx.Effect]:
    return [each for each in effects if isinstance(each, fx.Suppress | fx.Revive)]


def why(made: World, name: str) -> str:
    return why_of(made.state, made.settings, made.now, made.job(name)).summary


def test_offer_is_used_for_the_queues_of_its_role() -> None:
    made = two_roles()
    made.submit("other", queue="dev", gpus=1)
    made.submit("mine", queue="prod/web", gpus=1)
    assert launched(made.offers(to("gpu-prod", "p", gpus=4))) == [(["p"], ["mine"])]
    assert launched(made.offers(to("gpu", "d", gpus=3))) == [(["d"], ["other"])]


def test_offers_of_two_roles_never_go_into_one_launch() -> None:
    made = two_roles()
    made.submit("whole", queue="prod", gpus=4)
    made.submit("other", queue="dev", gpus=3)
    both = [to("gpu-prod", "p", gpus=2), to("gpu", "d", gpus=2)]
    assert launched(made.offers(*both)) == []
    assert launched(made.offers(to("gpu-prod", "q", gpus=2))) == [(["p", "q"], ["whole"])]


def test_second_role_has_its_turn_when_the_older_offer_is_given_back() -> None:
    made = two_roles(offer_hold_s=30.0)
    made.submit("large", queue="prod", gpus=8)
    made.submit("small", queue="dev", gpus=1)
    made.offers(to("gpu-prod", "p", gpus=2))
    made.now += 10
    assert launched(made.offers(to("gpu", "d", gpus=2))) == []
    made.now += 21
    assert [each.offer_ids for each in made.feed(ev.Tick()) if isinstance(each, fx.Decline)] == [("p",)]
    made.now += 1.5
    assert launched(made.feed(ev.Tick())) == [(["d"], ["small"])]


def test_roles_are_asked_for_only_while_jobs_wait_for_them() -> None:
    made = two_roles()
    made.now += 5
    assert asked(made.feed(ev.Tick())) == [fx.Suppress()]
    effects = made.feed(ev.JobSubmitted(*_job("one", "prod")))
    assert asked(effects) == [fx.Suppress(("gpu",)), fx.Revive(("gpu-prod",))]
    (declined,) = [each for each in made.offers(to("gpu", "late", gpus=4)) if isinstance(each, fx.Decline)]
    assert declined == fx.Decline((offer("late").id,), made.settings.mesos.idle_refuse_s)
    assert asked(made.feed(ev.JobSubmitted(*_job("two", "dev")))) == [fx.Revive(("gpu",))]


def _job(name: str, queue: str) -> tuple[JobId, JobSpec]:
    return JobId(name), spec(queue=queue, gpus=1)


def test_role_is_not_named_where_there_is_one_alone() -> None:
    made = world(agents=0, role="gpu")
    made.now += 5
    assert asked(made.feed(ev.Tick())) == [fx.Suppress()]
    assert asked(made.feed(ev.JobSubmitted(*_job("one", "prod")))) == [fx.Revive()]


def test_monitor_goes_by_the_default_role_if_it_is_offered_else_by_any() -> None:
    made = world(agents=0, role="gpu", role_of={"prod": "gpu-prod"})
    both = [to("gpu-prod", "p", gpus=2), to("gpu", "d", gpus=2)]
    assert only(made.offers(*both), fx.Launch).offer_ids == ("d",)
    alone = replace(to("gpu-prod", "q", gpus=2), agent_id=AgentId("a2"))
    assert only(made.offers(alone), fx.Launch).offer_ids == ("q",)


def test_covers_are_reserved_for_the_role_of_their_offer_and_their_keeper_is_of_one_role() -> None:
    made = two_roles(shared("g0"), shared("g1"))
    made.submit("p", queue="prod", **QUARTER)
    first = only(made.offers(to("gpu-prod", "p", gpus=1)), fx.Launch)
    assert {role_of(scalar) for scalar in first.reserve} == {"gpu-prod"}
    (keeper,) = {item.task.executor_id for item in first.tasks if item.task.covers}
    run(made, *(item.task for item in first.tasks))
    made.submit("d", queue="dev", gpus=1, gpu_milli=900)
    second = only(made.offers(to("gpu", "d", gpus=1)), fx.Launch)
    assert {role_of(scalar) for scalar in second.reserve} == {"gpu"}
    opened = [item.task for item in second.tasks if item.task.covers]
    assert [task.executor_id == keeper for task in opened] == [False]
    run(made, *(item.task for item in second.tasks))
    made.submit("q", queue="prod", **QUARTER)
    (joins,) = only(made.offers(to("gpu-prod", "q", gpus=0)), fx.Launch).tasks
    assert joins.task.covers is None, "an open card is open to all queues"


def test_explanation_names_the_role_that_lacks_offers() -> None:
    made = two_roles()
    made.submit("mine", queue="prod", gpus=1)
    assert why(made, "mine").endswith("; Mesos offers nothing to its queue's role gpu-prod")
    made.feed(ev.RoleRead(Role("gpu-prod", limits={"gpus": 0.0})))
    assert "the role gpu-prod may have 0 GPUs, and 0 are used" in why(made, "mine")


def test_reservation_for_another_role_does_not_hold_a_job_back() -> None:
    made = two_roles()
    amounts = {"cpus": 8.0, "mem": 16384.0, "gpus": 4.0}
    reserved = tuple(Scalar(name, amount, '{"role":"gpu"}') for name, amount in amounts.items())
    mine = replace(to("gpu", "d"), resources=reserved)
    made.submit("blocked", queue="prod", gpus=4, priority=9)
    made.submit("other", queue="dev", gpus=4)
    assert launched(made.offers(mine)) == [(["d"], ["other"])]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("prod/web=r", "prod/web is not a top-level queue; use prod"),
        (
            "prod=a/b",
            "role a/b is nested, and Mesos has no quota for nested roles; use a flat one, for example a-b",
        ),
        ("prod", "is not QUEUE=ROLE, for example research=gpu-research"),
        ("prod=*", "is not QUEUE=ROLE"),
        ("prod=-x", "is not QUEUE=ROLE"),
        ("prod=gpu", "role gpu is already used by another queue or --role"),
        ("dev=gpu-dev", "queue dev has two roles"),
    ],
)
def test_role_option_that_is_no_role_of_a_queue_is_refused(given: str, said: str) -> None:
    context = click.Context(click.Command("scheduler"))
    context.params["role"] = "gpu"
    with pytest.raises(click.BadParameter) as raised:
        parse.role_of(context, click.Option(["--mesos-role-of"]), ("dev=r", given))
    assert said in raised.value.message
