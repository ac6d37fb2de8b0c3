"""The suite of all drivers: a real Mesos, the cluster that is always ready, and the Mesos of `tests/chaos`.

What is asserted here is what the engine relies on. A driver that only notes its calls has part of it: the parameters,
and that a call which is not delivered raises `Unavailable`.
"""

import inspect
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest
import requests

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Unavailable
from mesos_gpu.libmesos import helpers
from mesos_gpu.local.cluster import AgentSpec, Cluster
from mesos_gpu.model.ids import AgentId, OfferId, TaskId
from mesos_gpu.model.nodes.offer import Offer, Scalar, carve
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.ports import Driver
from mesos_gpu.scheduler.__main__ import translate
from mesos_gpu.wire.mesos.reservations import is_others, is_ours, owner_of, reserved
from mesos_gpu.wire.mesos.v1 import resources_to_json
from tests.chaos.virtual import TERMINAL, Agent, VirtualMesos
from tests.conftest import wait_until
from tests.doubles.fake_driver import FakeDriver
from tests.doubles.ready_cluster import ReadyCluster
from tests.e2e.local.test_local_cluster import EXECUTOR

WAIT_S: Final = 60.0
METHODS: Final = [
    name for name, _ in inspect.getmembers(Driver, inspect.isfunction) if not name.startswith("_")
]
KINDS: Final = ["ready", "chaos", pytest.param("mesos", marks=pytest.mark.cluster)]


class ChaosDriver:
    """`Driver` on the Mesos of `tests/chaos`, which takes effects; `pump` lets its executors act."""

    def __init__(self, put: Callable[[ev.Event], None]) -> None:
        free = {"cpus": 4.0, "mem": 1024.0}
        self.mesos = VirtualMesos([Agent(AgentId("a0"), "a0.example", (), "535", free)])
        self._put = put

    def pump(self) -> None:
        """Offer what is free, move each task on by a step, deliver the mail."""
        mesos = self.mesos
        mesos.now += 1.0
        for agent in mesos.agents.values():
            if offered := mesos.offer(agent):
                mesos.post(offered)
        for run in mesos.alive():
            if run.to_be_killed:
                mesos.update(run, "TASK_KILLED")
            elif run.stage == "TASK_STAGING":
                mesos.start(run)
            elif run.stage == "TASK_STARTING":
                mesos.update(run, "TASK_RUNNING")
        mail, mesos.mail = mesos.mail, []
        for event in mail:
            self._put(event)

    def start(self) -> None:
        self.mesos.connected = True
        self.mesos.post(ev.Registered("fw", "http://master:5050"))

    def stop(self, *, teardown: bool) -> None:
        self.mesos.disconnect()

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        items = []
        for info in task_infos:
            id, agent_id = TaskId(info["task_id"]["value"]), AgentId(info["agent_id"]["value"])
            scalars = tuple(Scalar(each["name"], each["scalar"]["value"]) for each in info["resources"])
            task = Task(id, agent_id, id, None, TaskState.LAUNCHED, 0.0)
            items.append(fx.LaunchTask(task, None, scalars, ()))
        self.mesos.call(fx.Launch(tuple(map(OfferId, offer_ids)), tuple(items)))

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        self.mesos.call(fx.Decline(tuple(map(OfferId, offer_ids)), refuse_s))

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        self.mesos.call(fx.Acknowledge(AgentId(agent_id), TaskId(task_id), uuid))

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        self.mesos.call(fx.Kill(TaskId(task_id), AgentId(agent_id) if agent_id else None, grace_s))

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        pairs = tuple((TaskId(task_id), AgentId(agent_id or "")) for task_id, agent_id in tasks)
        self.mesos.call(fx.Reconcile(pairs))

    def tasks(self) -> Sequence[Listed]:
        return []

    def roles(self) -> Sequence[Role]:
        return []

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """No executor of it listens."""

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        self.mesos.call(fx.Shutdown(AgentId(agent_id), executor_id))

    def suppress(self, roles: Sequence[str] = ()) -> None:
        self.mesos.call(fx.Suppress(tuple(roles)))

    def revive(self, roles: Sequence[str] = ()) -> None:
        self.mesos.call(fx.Revive(tuple(roles)))

    def resubscribe(self) -> None:
        raise NotImplementedError("the world of chaos breaks a subscription itself")


@dataclass
class Rig:
    """A driver with its cluster, and all that was heard of it."""

    driver: Driver
    events: list[ev.Event]
    pump: Callable[[], None]
    executor: str = ""  # the command of an executor that says that its tasks run, until they are killed
    cycles: Callable[[], int] | None = None  # allocations of the master; None where `pump` is one
    serial: Iterator[int] = field(default_factory=lambda: count(1))

    def cycle(self) -> None:
        """Let the cluster offer what is free as often as makes sure that it is offered."""
        if self.cycles is None:
            for _ in range(3):
                self.pump()
            return
        before = self.cycles()
        wait_until("resources are allocated again", lambda: self.cycles() >= before + 3)  # type: ignore[misc]

    def until(self, happened: Callable[[list[ev.Event]], Any], what: str) -> Any:
        """What `happened` finds in the events, which may be yet to come."""
        deadline = time.monotonic() + WAIT_S
        while not (result := happened(list(self.events))):
            assert time.monotonic() < deadline, f"no {what} in {self.events}"
            self.pump()
            time.sleep(0.01)
        return result

    def offer(self) -> Offer:
        """Wait for an offer that is not older than this call, or not answered yet."""
        return self.until(_last_offer, "offer")  # type: ignore[no-any-return]

    def status(self, task_id: str, *states: str, after: int = 0) -> Status:
        """The first status of a task in one of the states, among the events from the `after`th on."""

        def heard(events: list[ev.Event]) -> Status | None:
            of = [event.status for event in events[after:] if isinstance(event, ev.StatusArrived)]
            return next((each for each in of if each.task_id == task_id and each.state in states), None)

        status: Status = self.until(heard, f"{states} of {task_id}")
        return status

    def launch(self, offer: Offer) -> str:
        """Accept an offer with one task that sleeps; its id."""
        task_id = f"t{next(self.serial)}"
        amounts = {"cpus": 0.1, "mem": 32.0}
        info = {
            "name": task_id,
            "task_id": {"value": task_id},
            "agent_id": {"value": offer.agent_id},
            "executor": {
                "executor_id": {"value": "e"},
                "type": "CUSTOM",
                "command": {"value": self.executor},
            },
            "resources": [
                {
                    "name": name,
                    "type": "SCALAR",
                    "scalar": {"value": amount},
                    "allocation_info": {"role": "*"},
                }
                for name, amount in amounts.items()
            ],
        }
        self.events[:] = [event for event in self.events if not isinstance(event, ev.OffersArrived)]
        self.driver.accept([offer.id], [info], refuse_s=0.0)
        return task_id

    def running(self) -> tuple[str, Status]:
        """A task that runs, and the status that said so, acknowledged with those before it."""
        task_id = self.launch(self.offer())
        while True:
            status = self.status(task_id, "TASK_STARTING", "TASK_RUNNING")
            self.events.remove(ev.StatusArrived(status))
            assert status.uuid, "an update asks for an acknowledgement"
            self.driver.acknowledge(status.agent_id or "", task_id, status.uuid)
            if status.state == "TASK_RUNNING":
                return task_id, status


def _last_offer(events: list[ev.Event]) -> Offer | None:
    offers = [offer for event in events if isinstance(event, ev.OffersArrived) for offer in event.offers]
    return offers[-1] if offers else None


@pytest.fixture(scope="module")
def mesos() -> Iterator[Cluster]:
    """A real Mesos master with one agent."""
    base = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    base.chmod(0o755)
    cluster = Cluster(base / "cluster", [AgentSpec()], isolation="posix").start()
    (cluster.directory / "executor.py").write_text(executor_text())
    yield cluster
    cluster.stop()
    shutil.rmtree(base)


def executor_text() -> str:
    """The executor of the tests of the embedded cluster, without the process beside it, and one that can kill."""
    lines = [line for line in EXECUTOR.splitlines(keepends=True) if "setsid" not in line]
    assert len(lines) == len(EXECUTOR.splitlines()) - 1
    kill = "def kill(task_id):\n    update(task_id, 'TASK_KILLED')\n"
    return "".join(lines).replace("# more\n", kill)


def _allocations(port: int) -> int:
    """Return how often a master has allocated resources since it began."""
    answer = requests.get(f"http://127.0.0.1:{port}/metrics/snapshot", timeout=60)
    return int(answer.json()["allocator/mesos/allocation_runs"])


def _nothing() -> None:
    """What moves by itself needs no pump."""


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    events: list[ev.Event] = []
    driver: Driver
    pump, executor, cycles = _nothing, "", None
    match request.param:
        case "ready":
            driver = ReadyCluster(1, events.append, time.time)
        case "chaos":
            driver = chaos = ChaosDriver(events.append)
            pump = chaos.pump
        case _:
            cluster: Cluster = request.getfixturevalue("mesos")
            driver = on_mesos(f"127.0.0.1:{cluster.master.port}", events.append)
            executor = f"exec {helpers.python()} -IS {cluster.directory}/executor.py"
            cycles = partial(_allocations, cluster.master.port)
    driver.start()
    yield Rig(driver, events, pump, executor, cycles)
    driver.stop(teardown=True)


def on_mesos(address: str, put: Callable[[ev.Event], None], role: str = "*") -> Driver:
    """The driver on pymesos, as the scheduler has it."""

    def sink(event: pd.DriverEvent) -> None:
        if (translated := translate(event, time.time(), b"key")) is not None:
            put(translated)

    user = Path.home().owner()
    framework = pd.FrameworkSettings(
        user, "contract", (role,), "http://127.0.0.1:1", "here", failover_timeout_s=0.0
    )
    return pd.PymesosDriver(framework, address, sink)


def test_driver_that_has_started_is_registered_and_has_offers(rig: Rig) -> None:
    offer = rig.offer()
    assert isinstance(rig.events[0], ev.Registered)
    assert rig.events[0].framework_id
    assert {scalar.name for scalar in offer.resources} >= {"cpus", "mem"}


def test_a_launch_runs_on_the_agent_of_its_offer(rig: Rig) -> None:
    offer = rig.offer()
    task_id = rig.launch(offer)
    assert rig.status(task_id, "TASK_STARTING", "TASK_RUNNING").agent_id == offer.agent_id


def test_offer_left_by_a_launch_comes_again(rig: Rig) -> None:
    rig.running()
    assert rig.offer().id


def test_an_offer_serves_one_launch_the_second_is_dropped(rig: Rig) -> None:
    offer = rig.offer()
    first, second = rig.launch(offer), rig.launch(offer)
    assert rig.status(second, *TERMINAL, "TASK_LOST", "TASK_DROPPED").reason
    assert rig.status(first, "TASK_STARTING", "TASK_RUNNING").agent_id == offer.agent_id


def test_a_task_that_is_killed_says_so_and_no_more(rig: Rig) -> None:
    task_id, status = rig.running()
    rig.driver.kill(task_id, status.agent_id, grace_s=0.0)
    killed = rig.status(task_id, "TASK_KILLED", "TASK_FAILED")
    assert killed.state == "TASK_KILLED"
    assert killed.uuid


@pytest.mark.cluster
def test_reservation_comes_back_with_its_framework_s_id_until_it_is_given_back(
    mesos: Cluster,
) -> None:
    events: list[ev.Event] = []
    driver = on_mesos(f"127.0.0.1:{mesos.master.port}", events.append, role="cards")
    driver.start()
    rig = Rig(driver, events, _nothing)

    def by(offer: Offer) -> dict[str, str]:
        """The amounts that are reserved for shared cards, and by whom."""
        return {each.name: owner for each in offer.resources if (owner := owner_of(each)) is not None}

    def offered(kept: bool) -> Offer:
        return rig.until(  # type: ignore[no-any-return]
            lambda heard: (offer := _last_offer(heard)) and bool(by(offer)) is kept and offer, "such an offer"
        )

    try:
        plain = offered(kept=False)
        framework = next(event.framework_id for event in events if isinstance(event, ev.Registered))
        least = Resources(cpus=0.01, mem_mib=32)
        wanted = [reserved(each, "cards", None, framework) for each in carve(plain.resources, least)[0]]
        driver.accept([plain.id], [], refuse_s=0.0, reserve=resources_to_json(wanted))
        back = offered(kept=True)
        assert by(back) == {"cpus": framework, "mem": framework}
        ours = [each for each in back.resources if is_ours(each, framework)]
        assert all(is_others(each, "another") for each in ours)
        driver.accept([back.id], [], refuse_s=0.0, unreserve=resources_to_json(ours))
        events[:] = [event for event in events if not isinstance(event, ev.OffersArrived)]
        offered(kept=False)
    finally:
        driver.stop(teardown=True)


def test_a_declined_offer_comes_again_under_another_id(rig: Rig) -> None:
    offer = rig.offer()
    rig.events.clear()
    rig.driver.decline([offer.id], refuse_s=0.0)
    rig.driver.revive()
    again = rig.offer()
    assert again.id != offer.id
    assert again.agent_id == offer.agent_id


def test_offers_do_not_come_while_suppressed(rig: Rig) -> None:
    offer = rig.offer()
    rig.driver.suppress()
    rig.driver.decline([offer.id], refuse_s=0.0)
    rig.events.clear()
    rig.cycle()
    assert _last_offer(rig.events) is None
    rig.driver.revive()
    assert rig.offer().id


def test_a_reconciliation_says_how_a_task_stands_and_asks_for_no_acknowledgement(rig: Rig) -> None:
    task_id, status = rig.running()
    for asked in [[(task_id, status.agent_id)], []]:
        rig.events.clear()
        rig.driver.reconcile(asked)
        assert rig.status(task_id, "TASK_RUNNING").uuid is None


def test_a_reconciliation_of_a_task_that_nobody_knows_says_that_it_is_gone(rig: Rig) -> None:
    agent_id = rig.offer().agent_id
    rig.driver.reconcile([("never-launched", agent_id)])
    assert rig.status("never-launched", "TASK_GONE", "TASK_LOST").uuid is None


# --- of all drivers, those that only note their calls, too


@pytest.mark.parametrize("driver", [pd.PymesosDriver, ReadyCluster, FakeDriver, ChaosDriver])
@pytest.mark.parametrize("name", METHODS)
def test_driver_calls_have_the_parameters_of_the_port(driver: type, name: str) -> None:
    wanted, given = getattr(Driver, name), getattr(driver, name)
    assert inspect.signature(given).parameters == inspect.signature(wanted).parameters
    assert get_type_hints(given) == get_type_hints(wanted)


CALLS: Final[dict[str, Callable[[Driver], object]]] = {
    "accept": lambda driver: driver.accept(["o"], [], refuse_s=0.0),
    "decline": lambda driver: driver.decline(["o"], refuse_s=0.0),
    "acknowledge": lambda driver: driver.acknowledge("a", "t", "u"),
    "kill": lambda driver: driver.kill("t", "a", grace_s=None),
    "reconcile": lambda driver: driver.reconcile([]),
    "tasks": lambda driver: driver.tasks(),
    "roles": lambda driver: driver.roles(),
    "message": lambda driver: driver.message("a", "e", b""),
    "shutdown": lambda driver: driver.shutdown("a", "e"),
    "suppress": lambda driver: driver.suppress(),
    "revive": lambda driver: driver.revive(),
}


def test_the_calls_tried_without_a_master_are_all_that_there_are() -> None:
    without_one = {"start", "stop", "resubscribe"}
    assert {*CALLS, *without_one} == set(METHODS)


@pytest.mark.parametrize("kind", ["pymesos", "fake"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_reaches_no_master_is_unavailable(name: str, kind: str) -> None:
    driver: Driver
    if kind == "pymesos":
        driver = on_mesos("127.0.0.1:1", lambda _: None)  # never started
    else:
        driver = fake = FakeDriver()
        fake.down = True
    threads = threading.active_count()
    with pytest.raises(Unavailable):
        CALLS[name](driver)
    assert threading.active_count() == threads
