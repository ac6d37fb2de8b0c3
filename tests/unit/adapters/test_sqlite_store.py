"""The store: what is saved comes back; what is damaged is refused, never guessed."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import Conflict, Damaged
from mesos_gpu.model.apps.split import Mode, TrafficSplit
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.drain import Card, Drain, Reset, Target
from mesos_gpu.model.nodes.gpu import Health, Inventory, Transition
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import (
    ForgetDrain,
    ForgetJob,
    ForgetNode,
    ForgetSplit,
    ForgetTask,
    Save,
    SaveCard,
    SaveDrain,
    SaveFramework,
    SaveJob,
    SaveNode,
    SaveSplit,
    SaveTask,
)
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.testing.builders import gpu

JOB = Job(
    JobId("j1"),
    JobSpec("j", argv=("a", "b"), env={"K": "v"}, gpu_model=("A100",), gpus=2, min_driver="535"),
    1.5,
    7,
    JobState.RUNNING,
    exit_code=3,
    learnt_min_driver="550",
    image_needs="CUDA 12.4 or newer",
)
TASK = Task(TaskId("j1.1"), AgentId("a1"), "j1.1", JobId("j1"), TaskState.RUNNING, 2.5, gpus=(GpuId("g0"),))
DRAIN = Drain(Target.NODE, "h", "fan", "ann", 3.5, 9.5)
CHANGE = Transition(1.25, Health.OK, Health.SICK, "XID 79")
CARD = Card(GpuId("g0"), (CHANGE,), {"sick": 1}, Reset("r1", "why", "ann", 4.5, 5.5))
NODE = Node(
    AgentId("a1"),
    "h",
    attributes={"rack": "1"},
    inventory=Inventory((gpu("g0"),), "simulated", "535", volume="535"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "scheduler.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def test_all_nouns_come_back_as_they_were(store: SqliteStore, path: Path) -> None:
    nouns: list[Save] = [SaveJob(JOB), SaveTask(TASK), SaveNode(NODE), SaveDrain(DRAIN), SaveCard(CARD)]
    store.save([SaveFramework("fw"), *nouns])
    store.close()
    again = SqliteStore(path)
    saved = again.load()
    again.close()
    assert (saved.framework_id, saved.jobs, saved.tasks, saved.nodes) == ("fw", (JOB,), (TASK,), (NODE,))
    assert (saved.drains, saved.cards) == ((DRAIN,), (CARD,))


def test_forgotten_is_gone(store: SqliteStore) -> None:
    store.save([SaveJob(JOB), SaveTask(TASK), SaveNode(NODE)])
    store.save([ForgetJob(JOB.id), ForgetNode(NODE.id)])
    assert (store.load().jobs, store.load().tasks, store.load().nodes) == ((), (), ())
    store.save([SaveTask(TASK)])
    store.save([ForgetTask(TASK.id)])
    assert store.load().tasks == ()
    store.save([SaveDrain(DRAIN)])
    store.save([ForgetDrain(DRAIN.target, DRAIN.name)])
    assert store.load().drains == ()


def test_named_services_come_back_until_they_are_forgotten(store: SqliteStore) -> None:
    web = TrafficSplit("web", {"/b": 90, "/a": 10}, 1, 80, ("h",), Mode.TCP)
    store.save([SaveSplit(web), SaveSplit(TrafficSplit("api", {"/a": 1}))])
    assert store.load().splits == (TrafficSplit("api", {"/a": 1}), web)
    assert list(store.load().splits[1].weights) == ["/b", "/a"]
    store.save([ForgetSplit("web")])
    assert [each.name for each in store.load().splits] == ["api"]


def test_the_first_schema_is_brought_up_and_its_nouns_are_read(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.executescript(files("mesos_gpu.adapters").joinpath("migrations/0001_initial.sql").read_text())
        spec = '{"name":"j","command":"true"}'
        job = f'{{"id":"j1","spec":{spec},"submitted_at":1.0,"sequence":1}}'
        db.execute("INSERT INTO jobs VALUES ('j1', 1, ?)", (job,))
        said = '{"gpus":[],"source":"nvml","driver_version":"535.1"}'
        node = f'{{"id":"a1","hostname":"h","inventory":{said}}}'
        db.execute("INSERT INTO nodes VALUES ('a1', ?)", (node,))
        db.execute("PRAGMA user_version=1")
    db.close()
    store = SqliteStore(path)
    assert store.load().nodes == (Node(AgentId("a1"), "h", inventory=Inventory((), "nvml", "535.1")),)
    (read,) = store.load().jobs
    assert (read.spec, read.min_driver) == (JobSpec("j", "true"), None)
    store.save([SaveCard(CARD)])
    assert store.load().cards == (CARD,)
    store.close()


def test_a_batch_is_all_or_nothing(store: SqliteStore) -> None:
    with pytest.raises(AttributeError):
        store.save([SaveJob(JOB), SaveTask(None)])  # type: ignore[arg-type]
    assert store.load().jobs == ()


def test_a_second_scheduler_is_refused(store: SqliteStore, path: Path) -> None:
    with pytest.raises(Conflict, match="another scheduler uses the state"):
        SqliteStore(path)


def test_the_lock_dies_with_its_process(path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; "
        "from mesos_gpu.adapters.sqlite_store import SqliteStore; "
        f"s = SqliteStore(Path({str(path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    SqliteStore(path).close()


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but long enough to be looked at" * 30])
def test_garbage_is_refused(path: Path, damage: bytes) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    body = path.read_bytes()
    path.write_bytes(damage + body[len(damage) :] if damage else body[: len(body) // 2])
    with pytest.raises(Damaged, match="cannot be read"):
        SqliteStore(path)


def test_a_body_that_is_no_job_is_refused(store: SqliteStore, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO jobs VALUES ('x', 1, '{}')")
    db.close()
    again = SqliteStore(path)
    with pytest.raises(Damaged, match="cannot be read"):
        again.load()
    again.close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=999")
    db.close()
    with pytest.raises(Damaged, match="schema 999"):
        SqliteStore(path)
