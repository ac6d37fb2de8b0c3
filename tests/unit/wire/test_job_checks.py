"""Health checks of a job: asked for, sent to its executors, heard of and shown."""

import base64
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from mesos_gpu.api.v1.views import job, task
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import round_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.saves import SaveTask
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.jobs import spec_from_mapping
from mesos_gpu.wire.mesos.assignment import decode_assignment
from mesos_gpu.wire.mesos.checks import decode
from mesos_gpu.wire.mesos.v1 import status_from_json
from tests.doubles.builders import World, gpu, only, spec
from tests.sights import ALL_SEEING

COMMAND = {"protocol": "COMMAND", "command": "test -e up"}


def problems(check: object, **more: object) -> dict[str, str]:
    spec = spec_from_mapping({"command": "true", "health_checks": [check], **more})
    return {} if isinstance(spec, JobSpec) else {p.path: p.reason for p in spec}


def accepted(*checks: Mapping[str, object], **more: object) -> tuple[HealthCheck, ...]:
    spec = spec_from_mapping({"command": "true", "health_checks": list(checks), **more})
    assert isinstance(spec, JobSpec), spec
    return spec.health_checks


def test_job_health_checks_are_read_from_the_request() -> None:
    times = {
        "grace_period_s": 1,
        "interval_s": 2,
        "timeout_s": 3,
        "max_consecutive_failures": 0,
        "delay_s": 4,
    }
    assert accepted(COMMAND, {"protocol": "MESOS_HTTPS", "port": 8443, "path": "/up", **times}) == (
        HealthCheck(Protocol.COMMAND, command="test -e up"),
        HealthCheck(Protocol.MESOS_HTTPS, "/up", 8443, None, None, 1, 2, 3, 0, 4),
    )
    (own,) = accepted({"protocol": "MESOS_TCP", "path": None}, tasks=2)
    assert (own.port, own.port_index) == (None, 0), "each of several tasks has a port"


@pytest.mark.parametrize(
    ("check", "path", "reason"),
    [
        ("true", "", "must be an object"),
        ({}, "/protocol", "must be one of COMMAND, MESOS_TCP, MESOS_HTTP, MESOS_HTTPS"),
        ({"protocol": "HTTP", "port": 1}, "/protocol", 'got "HTTP"'),
        ({"protocol": "COMMAND"}, "/command", "a non-empty string"),
        ({"protocol": "COMMAND", "command": " "}, "/command", "a non-empty string"),
        ({"protocol": "COMMAND", "command": 7}, "/command", "a non-empty string"),
        ({**COMMAND, "port": 1}, "/port", "is not used with protocol COMMAND; leave it out"),
        (
            {"protocol": "MESOS_TCP", "port": 1, "path": "/"},
            "/path",
            "is not used with protocol MESOS_TCP; leave it out",
        ),
        ({"protocol": "MESOS_TCP"}, "/port", "is needed for MESOS_TCP"),
        ({"protocol": "MESOS_TCP", "port": 65536}, "/port", "an integer from 1 to 65535"),
        ({"protocol": "MESOS_HTTP", "port": 1, "path": "up"}, "/path", "a path, as /health"),
        ({**COMMAND, "timeout_s": 0}, "/timeout_s", "an integer from 1"),
        ({**COMMAND, "interval_s": 0.5}, "/interval_s", "an integer from 0"),
        ({**COMMAND, "often": 1}, "/often", "unknown field; known fields are protocol, command"),
    ],
)
def test_job_health_check_problems_name_their_place(check: object, path: str, reason: str) -> None:
    reasons = problems(check)
    assert list(reasons) == [f"/health_checks/0{path}"]
    assert reason in reasons[f"/health_checks/0{path}"]


@pytest.mark.parametrize("checks", [{}, [COMMAND] * 17, "COMMAND"])
def test_job_health_checks_that_are_no_list_are_refused(checks: object) -> None:
    problems = spec_from_mapping({"command": "true", "health_checks": checks})
    assert isinstance(problems, list)
    assert [(problem.path) for problem in problems] == ["/health_checks"]


# --- of a job that runs


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    return world


def sent(launch: fx.LaunchTask) -> tuple[HealthCheck, ...]:
    """Return the checks in the message to the executor."""
    data = to_task_info(launch, Settings.of("e", "m"))["data"]
    return decode(decode_assignment(base64.b64decode(data)).checks)


def test_job_health_checks_reach_the_executor_with_their_ports(world: World) -> None:
    checks = (HealthCheck(), HealthCheck(Protocol.MESOS_TCP, port_index=0), *accepted(COMMAND))
    effects = world.feed(ev.JobSubmitted(JobId("j1"), spec(gpus=1, health_checks=checks)))
    launch = only(effects, fx.Launch).tasks[0]
    launch = replace(launch, task=replace(launch.task, ports=(31005,)))
    assert sent(launch) == (HealthCheck(Protocol.MESOS_TCP, port=31005, port_index=0), *accepted(COMMAND))
    assert sent(replace(launch, spec=spec())) == ()


def hear(world: World, state: str, healthy: bool | None, task: str = "j1.1") -> list[fx.Effect]:
    update = Status(TaskId(task), state, AgentId("a1"), uuid="u", healthy=healthy)
    return world.feed(ev.StatusArrived(update))


def saved(effects: list[fx.Effect]) -> list[bool | None]:
    return [effect.task.healthy for effect in effects if isinstance(effect, SaveTask)]


def healthy(world: World) -> object:
    view = View(world.state, Settings.of("e", "m"), world.now)
    (launch,) = round_of(view, world.job())
    assert task(view, launch, ALL_SEEING)["healthy"] is launch.healthy
    return job(view, world.job(), ALL_SEEING)["healthy"]


def test_job_health_is_saved_once_and_shown(world: World) -> None:
    world.submit(health_checks=accepted(COMMAND))
    assert saved(hear(world, "TASK_RUNNING", None)) == [None]
    assert healthy(world) is None
    assert saved(hear(world, "TASK_RUNNING", True)) == [True]
    assert hear(world, "TASK_RUNNING", True) == [fx.Acknowledge(AgentId("a1"), TaskId("j1.1"), "u")]
    assert healthy(world) is True
    assert saved(hear(world, "TASK_RUNNING", False)) == [False]
    assert healthy(world) is False
    assert world.job().state is JobState.RUNNING, "its executor ends it, if anybody does"
    assert saved(hear(world, "TASK_RUNNING", None)) == []
    assert healthy(world) is False


def test_job_health_of_an_unreachable_task_is_kept(world: World) -> None:
    world.submit(health_checks=accepted(COMMAND))
    hear(world, "TASK_RUNNING", False)
    effects = hear(world, "TASK_UNREACHABLE", None)
    assert not [effect for effect in effects if isinstance(effect, fx.Kill)]
    assert (world.job().state, healthy(world)) == (JobState.UNREACHABLE, False)
    assert saved(hear(world, "TASK_RUNNING", True))[-1] is True
    assert world.job().state is JobState.RUNNING


def test_job_health_of_an_ended_task_is_kept_and_its_job_has_none(world: World) -> None:
    world.submit(health_checks=accepted(COMMAND), max_attempts=2)
    hear(world, "TASK_RUNNING", False)
    hear(world, "TASK_FAILED", False)
    assert saved(hear(world, "TASK_RUNNING", True)) == [], "it came late"
    assert world.state.work.tasks[TaskId("j1.1")].healthy is False
    assert (world.job().attempts, healthy(world)) == (1, None)


def test_job_health_is_that_of_all_its_tasks(world: World) -> None:
    world.submit(tasks=2, health_checks=accepted(COMMAND))
    first, second = (task.id for task in world.state.work.round_of(world.job()))
    view = View(world.state, Settings.of("e", "m"), world.now)
    for one, health, of_all in ((first, True, None), (second, False, False), (second, True, True)):
        hear(world, "TASK_RUNNING", health, one)
        assert job(view, world.job(), ALL_SEEING)["healthy"] is of_all


def test_job_health_survives_a_restart_of_the_scheduler(world: World) -> None:
    world.submit(health_checks=accepted(COMMAND, {"protocol": "MESOS_TCP", "port": 80}))
    hear(world, "TASK_RUNNING", True)
    task = world.state.work.tasks[TaskId("j1.1")]
    assert msgspec.json.decode(msgspec.json.encode(world.job()), type=Job) == world.job()
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task


def test_job_health_is_read_from_a_status_of_mesos() -> None:
    told = {"task_id": {"value": "t"}, "state": "TASK_RUNNING"}
    assert [status_from_json(told | more).healthy for more in ({}, {"healthy": False})] == [None, False]
