"""The store: what is saved comes back; what is damaged is refused, never guessed."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.adapters.sqlite import schema
from mesos_gpu.adapters.sqlite.seal import SEALED_FROM
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.state import State
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
    SaveQueues,
    SaveSplit,
    SaveTask,
    value_of,
)
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec
from mesos_gpu.scheduler.options.files.uploads import UploadOptions
from tests.doubles.builders import gpu
from tests.unit.adapters.sqlite.children import in_a_child

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


def test_store_nouns_come_back_as_they_were(store: SqliteStore, path: Path) -> None:
    nouns: list[Save] = [SaveJob(JOB), SaveTask(TASK), SaveNode(NODE), SaveDrain(DRAIN), SaveCard(CARD)]
    store.save([SaveFramework("fw"), *nouns])
    store.close()
    again = SqliteStore(path)
    saved = again.load()
    again.close()
    assert (saved.framework_id, saved.jobs, saved.tasks, saved.nodes) == ("fw", (JOB,), (TASK,), (NODE,))
    assert (saved.drains, saved.cards) == ((DRAIN,), (CARD,))


def test_store_forgets_deleted_nouns(store: SqliteStore) -> None:
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


def test_store_brings_up_the_first_schema_and_reads_its_nouns(path: Path) -> None:
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


def test_store_reads_a_state_from_before_trees_of_queues(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        for migration in MIGRATIONS[:7]:
            db.executescript(migration.read_text())
        spec = '{"name":"j","command":"true","queue":"research","gpus":2}'
        job = f'{{"id":"j1","spec":{spec},"submitted_at":1.0,"sequence":1,"state":"pending"}}'
        db.execute("INSERT INTO jobs VALUES ('j1', 1, ?)", (job,))
        db.execute("PRAGMA user_version=7")
    db.close()
    store = SqliteStore(path)
    state = State.restored(5.0, store.load())
    assert (state.quota.queues.version, state.quota.tree.is_flat) == (0, True)
    (read,) = state.work.jobs.values()
    assert (read.spec.queue, read.seat, read.spared_until) == ("research", None, 0.0)
    document = QueueDocument(
        1, 2.0, queues={"research": QueueSpec(guarantee_gpus={"default": Guarantee(4000)})}
    )
    store.save([SaveQueues(document)])
    assert State.restored(6.0, store.load()).quota.queues == document
    store.close()


APP_OF_BEFORE = '{"version":1.0,"app":{"id":"/web","cmd":"serve","gpus":1,"gpu":{"memory_mib":40000}}}'
MIGRATIONS = sorted(files("mesos_gpu.adapters").joinpath("migrations").iterdir(), key=lambda file: file.name)
SHARED = Share(250, 20480, 20480, Method.SHIM_WINDOWS)
SHARES: list[Save] = [
    SaveJob(Job(JobId("part"), JobSpec("p", "true", gpus=1, gpu_milli=250), 1.0, 8)),
    SaveJob(
        Job(
            JobId("exact"),
            JobSpec(
                "e", "true", gpus=2, gpu_compute_pct=30, gpu_memory_mib=20480, gpu_memory_max_mib=40960,
                isolation=Isolation.STRICT,
            ),
            1.0,
            9,
        )
    ),
    SaveTask(replace(TASK, id=TaskId("part.1"), job_id=JobId("part"), gpus=(GpuId("g1"),), share=SHARED)),
    SaveTask(replace(TASK, id=TaskId("cover"), job_id=None, gpus=(), covers=GpuId("g1"))),
]  # fmt: skip


@pytest.mark.parametrize("schema", range(1, SEALED_FROM))  # later ones have checksums: see test_migrations
def test_store_reads_states_of_earlier_versions_and_takes_shares(path: Path, schema: int) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        for migration in MIGRATIONS[:schema]:
            db.executescript(migration.read_text())
        whole = '{"id":"j1","spec":{"name":"j","command":"true","gpus":2,"gpu_memory_mib":40000},"submitted_at":1.0'
        db.execute("INSERT INTO jobs VALUES ('j1', 1, ?)", (whole + ',"sequence":1}',))
        held = (
            '{"id":"j1.1","agent_id":"a1","executor_id":"j1.1","job_id":"j1","gpus":["g0"],"state":"running"'
        )
        db.execute("INSERT INTO tasks VALUES ('j1.1', 'j1', 2.0, ?)", (held + ',"launched_at":2.0}',))
        card = '{"id":"g0","model":"A100","memory_mib":81920,"minor":0,"pci_bus_id":"0000:01:00.0"}'
        node = f'{{"id":"a1","hostname":"h","inventory":{{"gpus":[{card}],"source":"nvml"}}}}'
        db.execute("INSERT INTO nodes VALUES ('a1', ?)", (node,))
        if schema >= 3:
            db.execute("INSERT INTO app_versions VALUES ('/web', 1.0, ?)", (APP_OF_BEFORE,))
        db.execute(f"PRAGMA user_version={schema}")
    db.close()
    store = SqliteStore(path)
    before = store.load()
    assert before.jobs[0].spec == JobSpec("j", "true", gpus=2, gpu_memory_mib=40000)
    assert not before.jobs[0].spec.is_share, "whole GPUs stay whole, whatever memory they must have"
    assert (before.tasks[0].share, before.tasks[0].covers) == (None, None)
    assert [gpu.sharing for gpu in before.nodes[0].gpus] == [None], (
        "a monitor of before says nothing of shares"
    )
    assert [each.app.gpu_milli for each in before.app_versions] == [1000] * (schema >= 3)
    store.save(SHARES)
    store.close()
    store = SqliteStore(path)
    after = store.load()
    store.close()
    of_before = (*before.jobs, *before.tasks)
    added = [noun for noun in (*after.jobs, *after.tasks) if noun not in of_before]
    assert sorted(added, key=repr) == sorted(map(value_of, SHARES), key=repr)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    db.close()


def test_store_from_before_shares_refuses_a_state_with_shares(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SqliteStore(path)
    store.save(SHARES)
    store.close()
    older = tmp_path / "older"
    (older / "migrations").mkdir(parents=True)
    for migration in MIGRATIONS[:5]:
        (older / "migrations" / migration.name).write_text(migration.read_text())
    monkeypatch.setattr(schema, "files", lambda _: older)
    with pytest.raises(Damaged, match=r"has schema [0-9]+, and this program supports 5 at most"):
        SqliteStore(path)


def test_store_batch_is_all_or_nothing(store: SqliteStore) -> None:
    with pytest.raises(AttributeError):
        store.save([SaveJob(JOB), SaveTask(None)])  # type: ignore[arg-type]
    assert store.load().jobs == ()


def test_store_closes_its_directory_to_others(path: Path) -> None:
    """The archives' own directory is closed whatever the modes that it was found with."""
    here = path.parent
    (here / "uploads/owner").mkdir(parents=True)
    (here / "uploads/owner" / ("a" * 64)).write_bytes(b"code")
    for each in (here, here / "uploads", here / "uploads/owner"):
        each.chmod(0o755)
    UploadOptions().store(path, Reserve(0))
    assert (here / "uploads").stat().st_mode & 0o077 == 0
    SqliteStore(path).close()
    assert here.stat().st_mode & 0o077 == 0


def test_store_leaves_a_shared_directory_open(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o755)
    (path.parent / "of-others").mkdir()
    SqliteStore(path).close()
    assert path.parent.stat().st_mode & 0o077 == 0o055


def test_store_refuses_a_second_scheduler(store: SqliteStore, path: Path) -> None:
    with pytest.raises(Conflict, match="another scheduler uses the state"):
        SqliteStore(path)


def test_store_lock_ends_with_its_process(path: Path) -> None:
    def hold() -> None:
        _ = SqliteStore(path)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(hold) == (-signal.SIGKILL, "")
    SqliteStore(path).close()


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but long enough to be looked at" * 30])
def test_store_refuses_a_file_that_is_no_database(path: Path, damage: bytes) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    body = path.read_bytes()
    path.write_bytes(damage + body[len(damage) :] if damage else body[: len(body) // 2])
    with pytest.raises(Damaged, match="cannot be read"):
        SqliteStore(path)


def test_store_refuses_a_body_that_is_no_job(store: SqliteStore, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO jobs VALUES ('x', 1, '{}')")
    db.close()
    with pytest.raises(Damaged, match="cannot be read"):
        SqliteStore(path)


def test_store_refuses_a_newer_schema(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=999")
    db.close()
    with pytest.raises(Damaged, match="schema 999"):
        SqliteStore(path)
