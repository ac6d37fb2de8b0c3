"""Ports at which an instance listens: reported by its executor, stored, and used by checks and exports."""

import json
from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.state import State
from mesos_gpu.model.apps.app import PortDefinition
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.hosts.listening import encode_listening, listening_to_json
from mesos_gpu.wire.hosts.program import encode_program
from tests.doubles.builders import World, offer, saved_of
from tests.unit.engine.apps.test_engine_apps import WEB, want

CHECKS = (
    HealthCheck(port=8080),
    HealthCheck(port_index=0),
    HealthCheck(
        Protocol.MESOS_TCP, port=8081
    ),  # its executor makes it, and proves what it connects to itself
)
APP = replace(WEB, instances=1, port_definitions=(PortDefinition(), PortDefinition()), health_checks=CHECKS)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    want(world, APP)
    return world


def launched(world: World) -> fx.LaunchTask:
    for number in range(5):
        effects = [*world.offers(offer(f"o{number}")), *world.tick(1)]
        items = [item for each in effects if isinstance(each, fx.Launch) for item in each.tasks if item.spec]
        if items:
            return items[0]
    raise AssertionError("nothing was launched")


def test_executor_is_asked_for_ports_of_its_app_and_of_checks(world: World) -> None:
    item = launched(world)
    assert item.listens == (*item.task.ports, 8080)
    assert len(item.task.ports) == 2


def test_port_of_an_instance_is_not_heeded_until_proved_nor_after_a_restart(world: World) -> None:
    id = launched(world).task.id

    def task() -> Task:
        return world.state.work.tasks[id]

    first, second = task().ports
    introduced = encode_program("1.0", listening=listening_to_json(Listening()))
    world.status(id, "TASK_RUNNING", data=introduced)
    assert task().program is not None
    assert task().proved_ports == (None, None)
    world.status(id, "TASK_RUNNING", data=encode_listening(Listening((second,), f"of uid 7 at {first}")))
    assert task().proved_ports == (None, second)
    assert State.restored(0.0, saved_of(world.state)).work.tasks[id].proved_ports == (None, second)
    bad = json.dumps({"listening": {"ports": [first, second], "problem": None}}).encode()
    world.status(id, "TASK_RUNNING", data=bad)
    assert task().proved_ports == (None, second)
    world.status(id, "TASK_RUNNING", data=encode_listening(Listening((first, second))))
    assert task().proved_ports == (first, second)


def test_executor_of_an_earlier_release_proves_nothing_and_is_believed(world: World) -> None:
    id = launched(world).task.id
    world.status(id, "TASK_RUNNING", data=encode_program("1.0"))
    assert world.state.work.tasks[id].proved_ports == world.state.work.tasks[id].ports
