"""What Mesos brings from hosts: whatever it is, it is passed over or taken in, can be saved, and read again."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import batch_line
from mesos_gpu.model import saves
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Link, Transition
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.card import Ability, MigInstance, MigProfile, Sharing
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.resize import ResizeAnswer
from mesos_gpu.scheduler.__main__ import Sink, translate
from mesos_gpu.wire.journal import decode_batch
from mesos_gpu.wire.mesos import assignment, labels, report, resize
from mesos_gpu.wire.mesos.seal import Said, seal, secret_for
from tests.doubles.builders import World, gpu, offer, only
from tests.property.examples import examples
from tests.property.hostile.words import BYTES, VALUES, hostile
from tests.unit.wire.test_wire import OFFER

KEY: Final = b"k" * 32
QUICK: Final = examples(20, 100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def card(number: int) -> Gpu:
    """A card of which all is said that can be."""
    instance = MigInstance("MIG-1", "1g.10gb", 9728, 14, 7, 0)
    sharing = Sharing(
        80_000,
        ((Ability.SHIM, ""), (Ability.MPS2, "no")),
        108,
        instances=(instance,),
        profiles=(MigProfile("1g.10gb", 19, 9728, 140, 125, (0, 1), 1),),
    )
    change = Transition(5.0, Health.OK, Health.SUSPECT, "why")
    return replace(
        gpu(f"GPU-{number}"), links=(Link(GpuId("GPU-9"), "NV4"),), history=(change,), warnings=("hot",), numa_node=0,
        compute_capability="8.0", sharing=sharing,
    )  # fmt: skip


REPORT: Final = json.loads(
    report.encode(
        Inventory(
            (card(0), card(1)),
            "nvml",
            "550.1",
            "12.4",
            uses=(ShareUse(TaskId("t"), GpuId("GPU-0"), 5, 6, 7, 8, 9, 10, "slow"),),
            secrets_key=base64.b64encode(bytes(32)).decode(),
        )
    )
)
OUTCOME: Final = json.loads(
    assignment.encode(Outcome(1, None, refused_gpus=(GpuId("GPU-0"),), min_driver="550"))
)
RESIZED: Final = json.loads(resize.encode_answer(ResizeAnswer(1, 1000, 1000, 250, used_mib=3)))
STATES: Final = (
    "TASK_STARTING",
    "TASK_RUNNING",
    "TASK_FINISHED",
    "TASK_FAILED",
    "TASK_KILLED",
    "TASK_LOST",
    "x",
)


def world() -> tuple[World, str, str]:
    """A scheduler with a node and a task of a job; the ids of its monitor and of the task."""
    made = World()
    made.register()
    launched = only(made.offers(offer("o1", gpus=2)), fx.Launch).tasks
    made.report("a1", gpu("GPU-0"), gpu("GPU-1"), task=launched[0].task.id)
    made.settings = made.settings.changed(sealed=True)  # from here on: the monitor is believed without
    made.submit("j1", gpus=1)
    made.offers(offer("o2", gpus=2))
    monitor = launched[0].task.id
    return made, monitor, next(task.id for task in made.state.work.tasks.values() if task.job_id is not None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    made = SqliteStore(Path(tmp_path_factory.mktemp("store")) / "state.db")
    yield made
    made.close()


def take_in(made: World, event: ev.Event | None, store: SqliteStore) -> None:
    """What a scheduler does with an event and after it; what it saved can be read again."""
    if event is None:
        return
    made.now += 1
    effects = made.feed(event)
    decode_batch(batch_line(1, made.now, [(event, effects)]))
    made.now += 1
    made.submit(f"j{made.now:g}", gpus=1)
    effects += made.feed(ev.Tick()) + made.offers(offer(f"o{made.now:g}", gpus=2))
    store.save([each for each in effects if isinstance(each, saves.Save)])
    store.load()


def status_of(task: str, state: str, data: bytes, **more: Any) -> dict[str, Any]:
    return {
        "task_id": {"value": task},
        "agent_id": {"value": "a1"},
        "executor_id": {"value": task},
        "state": state,
        "source": "SOURCE_EXECUTOR",
        "uuid": "AAAA",
        "timestamp": 1001.0,
        "data": base64.b64encode(data).decode(),
        **more,
    }


def as_bytes(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except ValueError:  # a number that Python does not write
        return b"1" * 5000


@QUICK
@given(data=hostile(REPORT).map(as_bytes) | BYTES)
@example(data=as_bytes({**REPORT, "source": "\ud800"}))
@example(data=as_bytes({**REPORT, "uses": [{**REPORT["uses"][0], "task_id": []}]}))
@example(data=as_bytes({**REPORT, "gpus": [{**REPORT["gpus"][0], "memory_mib": 10**320}]}))
def test_a_report_concerns_its_own_cards(data: bytes, store: SqliteStore) -> None:
    made, monitor, _ = world()
    update = translate(pd.Update(status_of(monitor, "TASK_RUNNING", data)), made.now)
    take_in(made, update, store)


@QUICK
@given(
    data=hostile(OUTCOME, RESIZED).map(as_bytes) | BYTES,
    state=st.sampled_from(STATES),
    message=st.sampled_from(["", "\ud800", "a\0b", "\x1b[2J", "x" * 100_000]),
    at=st.sampled_from([None, 1.0, 1e300, -1e300, float("nan"), float("inf"), 10**400]),
)
def test_message_of_an_executor_concerns_its_own_task(
    data: bytes, state: str, message: str, at: Any, store: SqliteStore
) -> None:
    made, _, task = world()
    said = Said(task, state, 1, message, body=data.decode(errors="replace"))
    for sealed in (data, seal(secret_for(KEY, task), said)):
        event = translate(
            pd.Update(status_of(task, state, sealed, message=message, timestamp=at)), made.now, KEY
        )
        take_in(made, event, store)
        made, _, task = world()


@QUICK
@given(status=hostile(status_of("t", "TASK_RUNNING", b"{}", healthy=True, message="m")))
def test_a_status_is_taken_in_or_passed_over(status: Any, store: SqliteStore) -> None:
    made, _, task = world()
    heard: list[ev.Event] = []
    sink = Sink(lambda: made.now, KEY)
    sink.daemon = _Heard(heard)  # type: ignore[assignment]
    if isinstance(status, dict) and status.get("task_id") == {"value": "t"}:
        status["task_id"] = {"value": task}
    sink(pd.Update(status))
    for event in heard:
        take_in(made, event, store)


@QUICK
@given(offers=st.lists(hostile(OFFER), max_size=2))
@example(offers=[{**OFFER, "attributes": [{"name": "rack", "type": "TEXT", "text": {"value": "\ud800"}}]}])
@example(
    offers=[{**OFFER, "attributes": [{"name": "n", "type": "SCALAR", "scalar": {"value": float("nan")}}]}]
)
def test_an_offer_that_cannot_be_read_takes_none_of_the_others_along(
    offers: list[Any], store: SqliteStore
) -> None:
    made, _, _ = world()
    heard: list[ev.Event] = []
    sink = Sink(lambda: made.now, KEY)
    sink.daemon = _Heard(heard)  # type: ignore[assignment]
    good = {**OFFER, "id": {"value": "good"}, "agent_id": {"value": "a2"}}
    sink(pd.Offers([*offers, good]))
    (event,) = heard
    assert isinstance(event, ev.OffersArrived)
    assert "good" in [each.id for each in event.offers]
    take_in(made, event, store)


class _Heard:
    """A daemon that only keeps what it is given."""

    def __init__(self, events: list[ev.Event]) -> None:
        self.put = events.append


LISTED: Final = {
    "id": "gone",
    "framework_id": "f",
    "slave_id": "a1",
    "state": "TASK_RUNNING",
    "name": "n",
    "resources": {"cpus": 1.0, "mem": 32.0},
    "labels": [{"key": labels.ROLE, "value": "job"}, {"key": "team", "value": "red"}],
}
AGENT: Final = {"id": "a1", "pid": "slave(1)@10.0.0.1:5051", "hostname": "h1"}


@QUICK
@given(task=hostile(LISTED), agent=hostile(AGENT))
def test_tasks_that_the_master_lists_are_read_one_by_one(task: Any, agent: Any, store: SqliteStore) -> None:
    made, _, _ = world()
    listed = labels.listed_from_json(
        [task, {**LISTED, "id": "good", "slave_id": "a2"}], [agent, {**AGENT, "id": "a2"}]
    )
    assert "good" in [each.task_id for each in listed]
    take_in(made, ev.TasksListed(tuple(listed)), store)


@QUICK
@given(launch=VALUES | BYTES.map(lambda data: data.decode(errors="replace")), gpus=VALUES)
def test_a_label_says_something_or_nothing(launch: Any, gpus: Any) -> None:
    label = labels.label_of({labels.LAUNCH: launch, labels.GPUS: gpus, labels.JOB: "j1"})
    assert label is None or label.job_id == JobId("j1")


def test_text_that_is_too_long_is_cut() -> None:
    update = translate(pd.Update(status_of("t", "TASK_FAILED", b"", message="x" * 10**6)), 0.0)
    assert isinstance(update, ev.StatusArrived)
    assert len(update.status.message) == 10_000
