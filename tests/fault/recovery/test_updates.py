"""Status updates that come twice, in another order, or an hour late: through the driver as Mesos sends them, to what
the engine says of jobs, gives out of cards, and keeps of their use."""

import base64
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.api.asking import new_job
from mesos_gpu.engine.reading.nodes import holder_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.usage import Closed
from mesos_gpu.scheduler.__main__ import Sink
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.wire.mesos import assignment, report
from tests.conftest import wait_until
from tests.doubles.builders import gpu, spec
from tests.doubles.fake_driver import FakeClock, RecordingStore
from tests.doubles.scripted_master import ScriptedMaster

FRAMEWORK: Final = pd.FrameworkSettings("root", "test", ("*",), "http://127.0.0.1:1", "here", 3600.0)
CARDS: Final = 4
HOUR_S: Final = 3600.0
KEPT_S: Final = 1.0  # an offer that the scheduler keeps for what waits
AGENT: Final = {"value": "a1"}
DONE: Final = assignment.encode(Outcome(exit_status=0))
LIFE: Final = ("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


class Played:
    """A master with one agent of four cards; its tasks do what the test says. The scheduler before it is real."""

    def __init__(self) -> None:
        self.master, self.clock, self.store = ScriptedMaster(), FakeClock(1e9), RecordingStore()
        sink = Sink(self.clock.now)
        driver = pd.PymesosDriver(FRAMEWORK, self.master.address, sink)
        self.daemon = Daemon(
            self.store, self.store.load(), driver, self.clock, Settings.of("executor", "monitor")
        )
        sink.daemon = self.daemon
        self.sent: list[str] = []  # the uuid of each update, as often as it was sent
        self.over: dict[str, float] = {}  # when the end of each task was first sent
        self.taken: dict[str, GpuId] = {}  # the card of each task that was launched
        self.began: dict[str, float] = {}  # when that was
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.master.wait_for("RECONCILE")  # it has heard that it is registered
        self.offer(gpus=CARDS, kept_s=60.0)
        (self.monitor,) = self.launched()
        self.wait(0.0)

    def wait(self, seconds: float) -> None:
        """Let time pass; then the node's monitor reports again, as those that are silent are not believed."""
        self.clock.time += seconds
        inventory = Inventory(tuple(gpu(f"g{n}") for n in range(CARDS)), "simulated", "535", "12.2")
        self.update(self.monitor, "TASK_RUNNING", report.encode(inventory))

    def close(self) -> None:
        self.clock.set_between_turns(None)
        self.daemon.stop()
        self.master.close()

    def launched(self) -> list[str]:
        """All tasks that the master was told to launch, in order."""
        return [info["task_id"]["value"] for info in self._infos()]

    def _infos(self) -> list[dict[str, Any]]:
        operations = [
            each for call in self.master.of_type("ACCEPT") for each in call.body["accept"]["operations"]
        ]
        return [
            info for each in operations if each["type"] == "LAUNCH" for info in each["launch"]["task_infos"]
        ]

    def offer(self, gpus: int | None = None, kept_s: float = KEPT_S) -> list[str]:
        """Offer what no task holds, and see what is launched on it: nothing, if the offer is declined, or kept for a
        while, after which it is taken back.

        A card of which a task was launched goes to another one only after the first one's end was sent.
        """
        free = CARDS - len(self.taken.keys() - self.over.keys()) if gpus is None else gpus
        if not free:
            return []
        before, ident = len(self._infos()), {"value": uuid.uuid4().hex}
        amounts = {"cpus": 64.0, "mem": 65536.0, "gpus": float(free)}
        resources = [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}, "allocation_info": {"role": "*"}}
            for name, value in amounts.items()
        ]
        one = {"id": ident, "agent_id": AGENT, "hostname": "a1", "resources": resources}
        self.master.send({"type": "OFFERS", "offers": {"offers": [one]}})
        began_at = time.monotonic()
        while ident not in self._answered() and time.monotonic() < began_at + kept_s:
            time.sleep(0.01)
        if ident not in self._answered():
            self.master.send({"type": "RESCIND", "rescind": {"offer_id": ident}})
            self.wait(0.0)  # what the monitor says is acknowledged after the offer is taken back
        new = self._infos()[before:]
        for info in new:
            self._take(info)
        return [info["task_id"]["value"] for info in new]

    def _answered(self) -> list[dict[str, str]]:
        calls = [*self.master.of_type("ACCEPT"), *self.master.of_type("DECLINE")]
        return [ident for call in calls for ident in call.body[call.type.lower()]["offer_ids"]]

    def _take(self, info: dict[str, Any]) -> None:
        assert len(self.launched()) == len(set(self.launched())), "a task was launched twice"
        data = base64.b64decode(info["data"])
        if b'"Assignment"' not in data:
            return  # the monitor
        (card,) = assignment.decode_assignment(data).gpus
        holders = [task for task, theirs in self.taken.items() if theirs == card and task not in self.over]
        assert holders == [], f"{card} was given out while {holders} may hold it"
        self.taken[info["task_id"]["value"]], self.began[info["task_id"]["value"]] = card, self.clock.time

    def told(self, task: str, state: str, data: bytes = b"", at: float | None = None) -> dict[str, Any]:
        """An update as the agent would send it now."""
        return {
            "task_id": {"value": task},
            "agent_id": AGENT,
            "executor_id": {"value": task},
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "timestamp": self.clock.time if at is None else at,
            "uuid": base64.b64encode(uuid.uuid4().bytes).decode(),
            "data": base64.b64encode(data).decode(),
        }

    def send(self, *statuses: dict[str, Any]) -> None:
        """Send updates, one after the other, and wait until each is acknowledged as often as it was sent."""
        for status in statuses:
            self.sent.append(status["uuid"])
            if status["state"] in ("TASK_FINISHED", "TASK_GONE"):
                self.over.setdefault(status["task_id"]["value"], self.clock.time)
            self.master.send({"type": "UPDATE", "update": {"status": status}})
        wait_until("all updates are acknowledged", lambda: not Counter(self.sent) - self._acknowledged())

    def _acknowledged(self) -> Counter[str]:
        return Counter(call.body["acknowledge"]["uuid"] for call in self.master.of_type("ACKNOWLEDGE"))

    def update(self, task: str, state: str, data: bytes = b"") -> None:
        self.send(self.told(task, state, data))

    def life(self, task: str, began_at: float, each_s: float) -> list[dict[str, Any]]:
        """The updates of a task that does its work, in their order."""
        bodies = (b"", b"", DONE)
        return [
            self.told(task, state, data, began_at + number * each_s)
            for number, (state, data) in enumerate(zip(LIFE, bodies, strict=True))
        ]

    def submit(self) -> JobId:
        return self.daemon.request(new_job(spec(gpus=1))).result(60).id

    def job(self, job_id: JobId) -> Job:
        return self.daemon.read(lambda view: view.jobs[job_id]).result(60)

    def holder(self, card: GpuId) -> str | None:
        task = self.daemon.read(lambda view: holder_of(view, card)).result(60)
        return None if task is None else str(task.id)

    def records(self) -> list[Closed]:
        """What was kept of use, as often as it was kept."""
        return [save.record for batch in self.store.batches for save in batch if isinstance(save, KeepRecord)]


@pytest.fixture
def played() -> Iterator[Played]:
    one = Played()
    yield one
    one.close()


def started(played: Played) -> tuple[JobId, str, GpuId]:
    """A job, its task, and its card."""
    job = played.submit()
    (task,) = wait_until("it is launched", played.offer)
    return job, task, played.taken[task]


@pytest.mark.parametrize("times", [2, 3])
def test_updates_that_come_several_times_count_once(played: Played, times: int) -> None:
    job, task, card = started(played)
    for status in played.life(task, played.clock.time, 10.0):
        played.wait(max(status["timestamp"] - played.clock.time, 0.0))
        played.send(*[status] * times)
        assert (played.holder(card) == task) is (status["state"] != "TASK_FINISHED")
    assert (played.job(job).state.value, played.job(job).attempts) == ("finished", 1)
    (record,) = played.records()
    assert record.ends_ms - record.span.begins_ms == 20_000
    assert played.offer() == [], "nothing is started again"


@pytest.mark.parametrize("order", [(2, 1, 0), (2, 0, 1), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
def test_updates_in_any_order_end_the_job_once_and_free_its_card_with_its_end(
    played: Played, order: Sequence[int]
) -> None:
    job, task, card = started(played)
    statuses = played.life(task, played.clock.time, 10.0)
    played.wait(20.0)
    ended = False
    for number in order:
        played.send(statuses[number])
        ended |= LIFE[number] == "TASK_FINISHED"
        assert (played.holder(card) is None) is ended
        assert (played.job(job).state.value == "finished") is ended
    other = played.submit()
    (next_task,) = wait_until("the next is launched", played.offer)
    held = played.taken[next_task]
    played.update(next_task, "TASK_RUNNING")
    played.send(*statuses)  # all of the first one again
    assert played.holder(held) == next_task
    assert (played.job(other).state.value, played.job(job).state.value) == ("running", "finished")
    (record,) = played.records()
    assert record.ends_ms - record.span.begins_ms == 20_000


def test_an_end_that_is_told_an_hour_late_is_dated_back_and_the_card_is_held_and_used_until_it_is_told(
    played: Played,
) -> None:
    """Nobody else could have the card before: its use is counted until then, once."""
    job, task, card = started(played)
    began_at = played.clock.time
    starting, running, finished = played.life(task, began_at, 10.0)
    played.wait(10.0)
    played.send(starting, running)
    played.wait(HOUR_S)
    assert played.holder(card) == task, "nobody said that it had ended"
    played.send(finished, finished)
    ended = played.job(job)
    assert (ended.state.value, ended.attempts, played.holder(card)) == ("finished", 1, None)
    assert ended.ended_at == pytest.approx(began_at + 20.0)
    (record,) = played.records()
    assert record.span.task_id == TaskId(task)
    assert record.ends_ms - record.span.begins_ms == 3_610_000


def test_updates_of_an_earlier_launch_an_hour_late_do_not_change_its_successor(
    played: Played,
) -> None:
    job, first, _ = started(played)
    played.update(first, "TASK_RUNNING")
    late = played.life(first, played.clock.time, 10.0)
    played.wait(30.0)
    played.send({**played.told(first, "TASK_GONE"), "source": "SOURCE_MASTER"})
    played.wait(60.0)  # past the pause before the next launch
    (second,) = wait_until("it is launched again", played.offer)
    card = played.taken[second]
    played.update(second, "TASK_RUNNING")
    played.wait(HOUR_S)
    played.send(*late, *late)
    assert played.job(job).state.value == "running"
    assert played.holder(card) == second
    assert played.offer() == []
    played.send({**played.told(second, "TASK_FINISHED", DONE)})
    ended = played.job(job)
    assert (ended.state.value, ended.attempts, played.holder(card)) == ("finished", 1, None)
    used = Counter(str(record.span.task_id) for record in played.records())
    assert used == {first: 1, second: 1}, "each launch is on record once"


@pytest.mark.parametrize("seed", range(3))
def test_updates_of_many_jobs_in_any_order_end_each_once_on_a_card_of_its_own(
    played: Played, seed: int
) -> None:
    """Each update one to three times, in any order; some an hour late. `Played.offer` sees that no card has two."""
    chance = random.Random(seed)
    jobs = [played.submit() for _ in range(10)]
    on_the_way: list[dict[str, Any]] = []
    while len(played.taken) < len(jobs) or on_the_way:
        for task in played.offer() if len(played.taken) < len(jobs) else ():
            for status in played.life(task, played.clock.time, chance.uniform(1.0, 20.0)):
                on_the_way += [status] * chance.randint(1, 3)
        played.wait(HOUR_S if chance.random() < 0.1 else 50.0)
        chance.shuffle(on_the_way)
        number = chance.randint(1, 8)
        played.send(*on_the_way[:number])
        del on_the_way[:number]
    assert {played.job(job).state.value for job in jobs} == {"finished"}
    assert {played.job(job).attempts for job in jobs} == {1}
    assert len(played.taken) == len(jobs), "none was launched twice"
    assert {played.holder(card) for card in played.taken.values()} == {None}
    assert len(played.records()) == len(jobs)
    used_ms = {str(each.span.task_id): each.ends_ms - each.span.begins_ms for each in played.records()}
    held_ms = {task: (played.over[task] - played.began[task]) * 1000 for task in played.taken}
    assert used_ms == pytest.approx(held_ms, abs=1), "from its launch to the first word of its end"
