"""Jobs with secrets in the engine: what is read when, who waits meanwhile, and which nodes will do."""

from itertools import pairwise
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, offer, only, spec

KEY = "A" * 43 + "="
SECRETS = (Secret("A", "team/a"), Secret("B", "team/b"), Secret("C", "team/a"))


@pytest.fixture
def world() -> World:
    world = World(Settings.of("executor", "monitor", secrets=True))
    world.register()
    return world


def node(world: World, agent: str = "a1", *, key: str = KEY, problem: str = "") -> list[fx.Effect]:
    """An agent without GPUs comes up; the effects of its report and of what it offers then."""
    monitor = only(world.offers(offer(f"{agent}-o", agent, cpus=0.1)), fx.Launch).tasks[0].task
    data = report.encode(Inventory(secrets_key=key, secrets_problem=problem))
    world.status(monitor.id, "TASK_RUNNING", agent=agent, data=data)
    return world.offers(offer(f"{agent}-p", agent))


def read(world: World, *sources: str, why: str = "") -> list[fx.Effect]:
    return world.feed(ev.SecretsRead(dict.fromkeys(sources, why)))


def wait(world: World, seconds: float, agent: str = "a1") -> list[fx.Effect]:
    """Time passes, and what an agent has is offered whenever it is not."""
    effects: list[fx.Effect] = []
    for _ in range(int(seconds)):
        world.serial += 1
        effects += world.tick(1)
        effects += [] if world.state.cluster.offers else world.offers(offer(f"{agent}-{world.serial}", agent))
    return effects


def asked(effects: list[fx.Effect]) -> list[str]:
    return [source for each in every(effects, fx.ReadSecrets) for source in each.sources]


def summary(world: World, name: str = "j1") -> str:
    return why_of(world.state, world.settings, world.now, world.job(name)).summary


def test_secrets_are_read_and_then_the_job_starts(world: World) -> None:
    node(world)
    assert asked(world.feed(ev.JobSubmitted(JobId("j1"), spec(secrets=SECRETS)))) == ["team/a", "team/b"]
    assert world.job().state is JobState.PENDING
    assert summary(world) == "waits for its secrets: secret team/a is being read"
    assert not every(read(world, "team/a"), fx.Launch)
    launch = only(read(world, "team/b"), fx.Launch)
    assert launch.tasks[0].spec is not None
    assert launch.tasks[0].spec.secrets == SECRETS


def test_agent_without_gpus_has_a_monitor_only_where_there_are_secrets() -> None:
    world = World()
    world.register()
    assert not every(world.offers(offer("o1")), fx.Launch)


def test_secret_that_cannot_be_read_holds_up_its_own_job_only(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    read(world, "team/a", why="there is no secret team/a")
    assert summary(world).startswith(
        "waits for its secrets: there is no secret team/a; tried once, again in 1 s"
    )
    estimate = why_of(world.state, world.settings, world.now, world.job("j1")).estimate
    assert estimate == Estimate(None, "it waits for its secrets")
    world.submit("j2")
    assert world.job("j2").state is JobState.STARTING
    assert world.job().launches == 0


def test_secret_read_is_repeated_ever_more_rarely(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    read(world, "team/a", why="Vault is sealed")
    tried_at = []
    for _ in range(200):
        if asked(wait(world, 1)):
            tried_at.append(world.now)
            read(world, "team/a", why="Vault is sealed")
    gaps = [after - before for before, after in pairwise(tried_at)]
    assert gaps == sorted(gaps)
    assert 4 < len(tried_at) < 12
    assert "tried" in summary(world)
    wait(world, 60)
    read(world, "team/a")
    assert world.job().state is JobState.STARTING


def test_secret_whose_answer_is_lost_is_asked_for_again(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    assert not asked(wait(world, world.settings.secret_store.secrets_answer_s - 2))
    assert asked(wait(world, 4)) == ["team/a"]


def test_secrets_of_a_waiting_job_stay_fresh(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1], cpus=64)
    read(world, "team/a")
    assert asked(wait(world, world.settings.secret_store.secrets_fresh_s - 1)) == []
    assert asked(wait(world, 3)) == ["team/a"]


def test_secrets_of_each_launch_are_those_of_the_store_then(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1], max_attempts=2)
    read(world, "team/a")
    task_id = world.job().task_id
    assert task_id is not None
    world.status(task_id, "TASK_RUNNING")
    wait(world, world.settings.secret_store.secrets_stale_s + 1)
    world.status(task_id, "TASK_FAILED")
    assert asked(wait(world, 3)) == ["team/a"]
    assert world.job().launches == 1
    read(world, "team/a")
    assert world.job().launches == 2


def test_secret_read_before_a_job_came_is_read_again_for_it(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    read(world, "team/a")
    world.offers(offer("next", "a1"))
    world.now += 1
    assert asked(world.feed(ev.JobSubmitted(JobId("j2"), spec(secrets=SECRETS[:1])))) == ["team/a"]
    world.now += 1
    assert asked(world.feed(ev.JobSubmitted(JobId("j3"), spec(secrets=SECRETS[:1])))) == [], "one at a time"
    read(world, "team/a")
    assert world.job("j2").state is JobState.STARTING
    assert world.job("j3").state is JobState.PENDING


def test_secret_store_that_fails_is_not_asked_for_each_new_job(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    read(world, "team/a", why="Vault is sealed")
    assert not any(
        asked(world.feed(ev.JobSubmitted(JobId(f"more-{n}"), spec(secrets=SECRETS[:1])))) for n in range(20)
    )


def test_secret_that_no_job_waits_for_is_forgotten(world: World) -> None:
    node(world)
    world.submit(secrets=SECRETS[:1])
    read(world, "team/a")
    assert world.job().state is JobState.STARTING
    effects = wait(world, 3 * world.settings.secret_store.secrets_stale_s)
    assert only(effects, fx.ForgetSecrets).sources == ("team/a",)
    assert world.state.work.secrets == {}


def test_secrets_do_not_go_to_a_node_without_a_key(world: World) -> None:
    world.submit(secrets=SECRETS[:1])
    node(world, key="", problem="its kernel has no Landlock")
    read(world, "team/a")
    assert world.job().state is JobState.PENDING
    answer = why_of(world.state, world.settings, world.now, world.job())
    assert answer.nodes[0].reasons == ("takes no secrets: its kernel has no Landlock",)
    node(world, "a2")
    assert world.state.work.tasks[world.job().task_id or ""].agent_id == AgentId("a2")  # type: ignore[index]


def test_gang_with_secrets_starts_whole_or_not(world: World) -> None:
    world.submit(secrets=SECRETS[:1], tasks=2, cpus=5)
    node(world, "a1")
    node(world, "a2", key="", problem="no key")
    read(world, "team/a")
    assert world.job().launches == 0
    node(world, "a3")
    assert {world.state.work.tasks[each].agent_id for each in world.state.work.launches[world.job().id]} == {
        "a1",
        "a3",
    }


def test_preemption_ends_no_job_for_one_whose_secrets_are_missing(world: World) -> None:
    node(world)
    world.submit("low", cpus=6, preemptible=True)
    world.submit("high", cpus=6, priority=10, secrets=SECRETS[:1])
    read(world, "team/a", why="there is no secret team/a")
    assert not every(wait(world, 20), fx.Kill)


def test_secret_key_of_a_node_must_be_a_key() -> None:
    for wrong in ("short", "!" * 44, 7, None):
        body = {"version": 1, "gpus": [], "source": "none", "driver_version": None, "secrets_key": wrong}
        with pytest.raises(ValueError, match="secrets_key"):
            report.inventory_from_json(body)
    said = Inventory(secrets_key=KEY, secrets_problem="why")
    assert report.decode(report.encode(said)) == said


# --- logins for registries of images

QUEUES = QueueDocument(
    queues={
        "research": QueueSpec(image_secret="team/ngc"),
        "research/own": QueueSpec(image_secret="own/ngc"),
        "research/vision": QueueSpec(),
        "sales": QueueSpec(),
    }
)


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({"image": "app", "image_secret": "my/ngc", "queue": "research/vision"}, "my/ngc"),
        ({"image": "app", "queue": "research/vision"}, "team/ngc"),
        ({"image": "app", "queue": "research/own"}, "own/ngc"),
        ({"image": "app", "queue": "sales"}, ""),
        ({"queue": "research/vision"}, ""),
    ],
)
def test_image_secret_is_that_of_the_job_or_of_the_nearest_queue(
    world: World, more: dict[str, Any], source: str
) -> None:
    node(world)
    world.feed(ev.QueuesChanged(QUEUES, 0))
    wanted = spec(**more)
    effects = world.feed(ev.JobSubmitted(JobId("j1"), wanted))
    assert asked(effects) == ([source] if source else [])
    if source:
        assert world.job().state is JobState.PENDING
        effects = read(world, source)
    (launch,) = [each for each in every(effects, fx.Launch)[0].tasks if each.spec is not None]
    assert launch.spec is not None
    assert (launch.image_secret, launch.spec.image_secret) == (source, wanted.image_secret)


def test_image_secret_of_a_queue_that_cannot_be_read_holds_up_jobs_with_images_only(world: World) -> None:
    node(world)
    world.feed(ev.QueuesChanged(QUEUES, 0))
    world.submit("j1", image="app", queue="research/vision")
    read(world, "team/ngc", why="there is no secret team/ngc")
    assert summary(world).startswith("waits for its secrets: there is no secret team/ngc")
    world.submit("j2", queue="research/vision")
    assert world.job("j2").state is JobState.STARTING


def test_job_with_an_image_secret_goes_to_no_node_without_a_key(world: World) -> None:
    node(world, key="", problem="its kernel has no Landlock")
    world.submit(image="app", image_secret="team/ngc")
    read(world, "team/ngc")
    assert world.job().state is JobState.PENDING
    answer = why_of(world.state, world.settings, world.now, world.job("j1"))
    assert "takes no secrets: its kernel has no Landlock" in str(answer.nodes)
