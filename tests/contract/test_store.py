"""The suite of all stores: SQLite, the one that several schedulers have through ZooKeeper, the store in memory by which
`tests/chaos` judges, and the tests' own.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.election import Election
from mesos_gpu.adapters.replicated.log import Log
from mesos_gpu.adapters.replicated.store import Follower, ReplicatedStore
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.adapters.usage.reader import SqliteRecords
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model import saves
from mesos_gpu.model.access.caller import Narrowing
from mesos_gpu.model.access.document import AccessDocument, Binding, Shared
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import App, GpuOptions, Group
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, GroupShape, RootVersion
from mesos_gpu.model.apps.rollout import Plan, VersionInfo
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking, BookingSpec, BookingState, Place, Repeat
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.gpu_use import Work
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.past_jobs import PastJob
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.model.tasks.hook import Hook, HookVersion, Sent, StoredHooks
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from mesos_gpu.model.usage import (
    BudgetUse,
    CardCount,
    Closed,
    MeasuredWork,
    Part,
    PastUse,
    Span,
    SpanEnd,
    SpanWork,
)
from mesos_gpu.ports import Store
from tests.chaos.virtual import VirtualMesos
from tests.chaos.witness import Witness
from tests.doubles.fake_driver import RecordingStore
from tests.doubles.memory_store import MemoryStore

EMPTY: Final = Saved(None, (), (), ())


def saved(**nouns: Any) -> Saved:
    """What a store gives back that holds nothing but these."""
    return replace(EMPTY, **nouns)


def job(id: str = "j1", sequence: int = 1, **changes: Any) -> Job:
    return Job(JobId(id), JobSpec(id, argv=("a",), gpus=1), 1.0, sequence, **changes)


def task(
    id: str = "j1.1", job_id: str = "j1", launched_at: float = 2.0, state: TaskState = TaskState.LAUNCHED
) -> Task:
    return Task(TaskId(id), AgentId("a1"), id, JobId(job_id), state, launched_at)


#: Stores may keep its environment and labels elsewhere than the rest of a job.
LARGE: Final = JobSpec("large", argv=("a",), env={"DATA": "x" * 5000}, labels={"a": "y" * 2000})
SHARE: Final = replace(
    JobSpec("share", argv=("a",), gpus=2, gpu_compute_pct=30, gpu_memory_mib=20480),
    gpu_memory_max_mib=40960,
    isolation=Isolation.STRICT,
)
PLACE: Final = Place(AgentId("a1"), "a1.example", (GpuId("g1"), GpuId("g2")))


def booking(id: str, **more: Any) -> Booking:
    spec = BookingSpec(id, "exam", 2, "2026-12-01T09:00", 3600, "Europe/Vienna", repeat=Repeat.WEEKLY)
    return Booking(id, spec, "ann", 1.0, "2026-12-01", 1796112000, 1796115600, **more)


def array(id: str, sequence: int, **more: Any) -> JobArray:
    return JobArray(JobId(id), JobSpec(id, argv=("a",), array="0-9%2"), 1.0, sequence, **more)


def app_version(id: str = "/web", version: float = 1.0, **changes: Any) -> AppVersion:
    return AppVersion(version, App(id, **changes))


def deployment(id: str = "d1", version: float = 1.0, step: int = 0) -> Deployment:
    return Deployment(id, version, Plan(Group("/"), Group("/"), ()), step=step)


def span(id: str = "j1.1", gpu_milli: int = 1000, begins_ms: int = 1) -> Span:
    part = Part("A100", gpu_milli, 2 * gpu_milli)
    return Span(TaskId(id), JobId("j1"), "ann", "ml", "", "", "", (part,), False, 100, begins_ms)


#: By noun (a field of `Saved`): one of it, the same changed, others that come after it, and how it is forgotten.
NOUNS: Final[dict[str, tuple[list[Save], Save | None]]] = {
    "jobs": (
        [
            saves.SaveJob(job()),
            saves.SaveJob(job(state=JobState.RUNNING)),
            saves.SaveJob(job("j0", 2)),
            saves.SaveJob(job("j2", 2)),
            saves.SaveJob(Job(JobId("part"), JobSpec("part", argv=("a",), gpus=1, gpu_milli=250), 1.0, 3)),
            saves.SaveJob(Job(JobId("share"), SHARE, 1.0, 4)),
            *(saves.SaveJob(Job(JobId(id), LARGE, 1.0, 5, owner="ann")) for id in ("large", "large-too")),
        ],
        saves.ForgetJob(JobId("j1")),
    ),
    "tasks": (
        [
            saves.SaveTask(task()),
            saves.SaveTask(task(state=TaskState.RUNNING)),
            saves.SaveTask(task("j0.1", "j0", 3.0)),
            saves.SaveTask(task("j0.2", "j0", 3.0)),
            saves.SaveTask(
                replace(
                    task("part.1", "part", 4.0),
                    gpus=(GpuId("g1"),),
                    share=Share(250, 20480, 40960, Method.DMEM_MPS3, "alice", "MIG-1"),
                )
            ),
            saves.SaveTask(replace(task("cover", "-", 5.0), job_id=None, covers=GpuId("g1"))),
        ],
        saves.ForgetTask(TaskId("j1.1")),
    ),
    "nodes": (
        [saves.SaveNode(Node(AgentId(id), name)) for id, name in (("a1", "h"), ("a1", "i"), ("a2", "h"))],
        saves.ForgetNode(AgentId("a1")),
    ),
    "drains": (
        [
            saves.SaveDrain(Drain(target, name, why, "ann", 1.0, None))
            for target, name, why in (
                (Target.GPU, "g", "fan"),
                (Target.GPU, "g", "dust"),
                (Target.NODE, "a", "fan"),
            )
        ],
        saves.ForgetDrain(Target.GPU, "g"),
    ),
    "cards": (
        [
            saves.SaveCard(Card(GpuId(id), (), seen))
            for id, seen in (("g0", {}), ("g0", {"sick": 1}), ("g1", {}))
        ],
        None,
    ),
    "app_versions": (
        [
            saves.SaveAppVersion(version)
            for version in (
                app_version(),
                app_version(instances=2),
                app_version(version=2.0),
                app_version("/x", 0.5),
                app_version("/y", gpus=1, gpu_milli=250, gpu=GpuOptions(compute_pct=30)),
            )
        ],
        saves.ForgetAppVersion("/web", 1.0),
    ),
    "roots": (
        [
            saves.SaveRootVersion(RootVersion(version, GroupShape("/", apps)))
            for version, apps in ((1.0, ()), (1.0, (("/web", 1.0),)), (2.0, ()))
        ],
        saves.ForgetRootVersion(1.0),
    ),
    "deployments": (
        [
            saves.SaveDeployment(each)
            for each in (deployment(), deployment(step=1), deployment("c", 2.0), deployment("d2", 2.0))
        ],
        saves.ForgetDeployment("d1", done=True),
    ),
    "splits": (
        [
            saves.SaveSplit(TrafficSplit(name, weights))
            for name, weights in (("api", {"/b": 1, "/a": 2}), ("api", {"/a": 1}), ("web", {"/b": 1}))
        ],
        saves.ForgetSplit("api"),
    ),
    "access_versions": (
        [
            saves.SaveAccess(AccessDocument(version, 1.0, by, bindings=bindings, shares=shares))
            for version, by, bindings, shares in (
                (1, "ann", (), {}),
                (1, "bob", (Binding(("ann",), (), ("admin",)),), {"ml": (Shared.JOBS, Shared.OUTPUT)}),
                (2, "ann", (), {}),
                (10, "ann", (), {}),
            )
        ],
        saves.ForgetAccess(1),
    ),
    "queue_versions": (
        [
            saves.SaveQueues(QueueDocument(version, 1.0, by, queues={"ml/vision": QueueSpec(weight=weight)}))
            for version, by, weight in ((1, "ann", 1), (1, "bob", 2), (2, "ann", 1), (10, "ann", 1))
        ],
        saves.ForgetQueues(1),
    ),
    "past_uses": (
        [
            saves.SavePastUse(PastUse(queue, user, value, 10**15, 8000))
            for queue, user, value in (
                ("ml", "*", 1),
                ("ml", "*", 1 << 60),
                ("ml", "ann", 2),
                ("x/y", "", 3),
            )
        ],
        saves.ForgetPastUse("ml", "*"),
    ),
    "spans": (
        [
            saves.SaveSpan(span(id, gpu_milli))
            for id, gpu_milli in (("j1.1", 1000), ("j1.1", 2000), ("j2.1", 250))
        ],
        saves.ForgetSpan(TaskId("j1.1")),
    ),
    "span_works": (
        [
            saves.SaveSpanWork(SpanWork(TaskId(id), at, (CardCount(GpuId("g"), Work(1.5, at, 1)),), did))
            for id, at, did in (
                ("j1.1", 7, ()),
                ("j1.1", 8, (MeasuredWork(2, "T4", 1, 2, 3),)),
                ("j2.1", 9, ()),
            )
        ],
        saves.ForgetSpanWork(TaskId("j1.1")),
    ),
    "budget_uses": (
        [
            saves.SaveBudgetUse(BudgetUse(queue, user, index, 1, 2, "month UTC", used))
            for queue, user, index, used in (
                ("ml", "*", 3, 1),
                ("ml", "*", 3, 2),
                ("ml", "*", 10, 1),
                ("ml", "ann", 1, 1),
            )
        ],
        saves.ForgetBudgetUse("ml", "*", 3),
    ),
    "tokens": (
        [
            saves.SaveToken(
                Token(id, name, "5a17", "d1", 1.0, 2.0, ("ml",), Narrowing(("job:*",)), used_at=used_at)
            )
            for id, name, used_at in (
                ("a1", "ann", None),
                ("a1", "ann", 1.5),
                ("a2", "ann", None),
                ("b1", "ann", 3.0),
            )
        ],
        saves.ForgetToken("a1"),
    ),
    "bookings": (
        [
            saves.SaveBooking(booking("a")),
            saves.SaveBooking(booking("a", state=BookingState.ACTIVE, places=(PLACE,), used_at=3.5)),
            saves.SaveBooking(booking("b", last=BookingState.RETURNED)),
            saves.SaveBooking(booking("c", ended_at=3.0)),
        ],
        saves.ForgetBooking("a"),
    ),
    "volumes": (
        [
            saves.SaveVolume(PersistentVolume("a", "data", 10, "/db", JobId("db.1"))),
            saves.SaveVolume(PersistentVolume("a", "data", 10, "/db", JobId("db.2"), "h", is_made=True)),
            saves.SaveVolume(PersistentVolume("b", "log", 20, "/db", JobId("db.2"), "h", unwanted=True)),
            saves.SaveVolume(
                PersistentVolume("c", "x", 5, "", JobId("j"), owner="ann", user="www", used_at=2.5)
            ),
        ],
        saves.ForgetVolume("a"),
    ),
    "arrays": (
        [
            saves.SaveArray(array("b", 2)),
            saves.SaveArray(array("b", 2, left=((1, 3), (5, 9)), finished=((0, 0),), killed=((4, 4),))),
            saves.SaveArray(array("a", 10)),
            saves.SaveArray(array("c", 20, ended_at=3.0)),
            saves.SaveArray(JobArray(JobId("d"), replace(LARGE, array="0-9"), 1.0, 21, left=((0, 9),))),
        ],
        saves.ForgetArray(JobId("b")),
    ),
    "idlenesses": (
        [
            saves.SaveIdleness(Idleness(JobId(job), 1, state, 5.0, idle_ms, 10, 6.0, keep_until, "ann"))
            for job, state, idle_ms, keep_until in (
                ("a", IdleState.SUSPECT, 60_000, None),
                ("a", IdleState.WARNED, 120_000, None),
                ("b", IdleState.ACTIVE, 0, 99.5),
            )
        ],
        saves.ForgetIdleness(JobId("a")),
    ),
}
#: What there is one of: a field of `Saved`, and how it becomes another.
SINGLE: Final[dict[str, list[Save]]] = {
    "framework_id": [saves.SaveFramework("f1"), saves.SaveFramework("f2")],
    "catalog": [
        saves.SaveServices(
            AppCatalog(Group("/", (App("/web"),)), {"/web": VersionInfo(version, version, version)})
        )
        for version in (1.0, 2.0)
    ],
    "hooks": [
        saves.KeepHooks(
            StoredHooks(
                by, HookVersion(2, 1.0, "ann", "h made", (Hook("h", "https://h/x", tuple(EventKind)),)), key
            )
        )
        for by, key in (("", {}), ("http://a:1", {"h": b"\0\xff"}))
    ],
    "sent": [saves.KeepSent(Sent("", 7)), saves.KeepSent(Sent("http://a:1", 9, {"h": 3, "": 8}))],
}


class NextLeader:
    """The state as the next scheduler finds it that leads: it has nothing but what the log has."""

    def __init__(self, path: Path, meeting: str) -> None:
        place = at.parsed(meeting)
        self._client = at.connected(place)
        log, election = Log(self._client, place), Election(self._client, place, str(path))
        election.stand()
        assert election.leads()
        term = election.take()
        local = SqliteStore(path, replicated=True)
        follower = Follower(local, log, self._client, place)
        if not follower.join():
            follower.begin(term)
        while follower.take_over():
            pass
        self.store = ReplicatedStore(local, log, term)

    def close(self) -> None:
        self.store.close()
        at.close(self._client)


class Reopened:
    """A store that tests may close and open again."""

    def __init__(self, kind: str, path: Path, meeting: str) -> None:
        self.kind, self.path, self.meeting = kind, path, meeting
        self._leader: NextLeader | None = None
        self._starts = 0
        self.store: Store = self._open()

    def _open(self) -> Store:
        match self.kind:
            case "sqlite":
                return SqliteStore(self.path)
            case "replicated":
                self._starts += 1
                self._leader = NextLeader(self.path.with_name(f"{self._starts}.sqlite"), self.meeting)
                return self._leader.store
            case "witness":
                return Witness(VirtualMesos(()), Settings.of("e", "m")).disk
            case "recording":
                return RecordingStore()
            case _:
                return MemoryStore()

    @property
    def file(self) -> Path | None:
        """What its scheduler's reports are read from."""
        if self.kind == "replicated":
            return self.path.with_name(f"{self._starts}.sqlite")
        return self.path if self.kind == "sqlite" else None

    def doubt(self) -> None:
        """Let it be a state that may be older than what runs."""
        if self.file is not None:
            local = self.store._local if isinstance(self.store, ReplicatedStore) else self.store
            assert isinstance(local, SqliteStore)
            local._keep([("doubtful", "1")])
        else:
            self.store.doubtful = True  # type: ignore[attr-defined]

    def after_a_restart(self) -> Saved:
        """What the next scheduler finds."""
        if self.kind not in ("sqlite", "replicated"):
            return self.store.load()
        self.close()
        self.store = self._open()
        return self.store.load()

    def close(self) -> None:
        (self._leader or self.store).close()


KINDS: Final = ("sqlite", "replicated", "memory", "recording", "witness")


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopened]:
    meeting = request.getfixturevalue("meeting") if request.param == "replicated" else ""
    reopened = Reopened(request.param, tmp_path / "state" / "scheduler.sqlite", meeting)
    yield reopened
    reopened.close()


def noun_of(save: Save) -> Any:
    of_one = {saves.SaveFramework: "framework_id", saves.KeepHooks: "hooks", saves.KeepSent: "sent"}
    return getattr(save, of_one[type(save)]) if type(save) in of_one else saves.value_of(save)


def latest(batch: list[Save]) -> tuple[object, ...]:
    """The nouns in the order that a store promises: each list of `NOUNS` is in it, but for apps' versions."""
    nouns: list[Any] = list({saves.subject(save): noun_of(save) for save in batch}.values())
    if isinstance(nouns[0], AppVersion):
        nouns.sort(key=lambda each: (each.app.id, each.version))
    return tuple(nouns)


def test_the_examples_are_of_each_kind_of_save_and_of_each_thing_saved() -> None:
    records = [saves.KeepRecord(Closed(span(), 2, 0, 0, SpanEnd.FINISHED)), saves.FoldRecords(1)]
    happened = [saves.KeepEvent(event(1)), saves.ForgetEvents(1), saves.KeepJob(past_job())]
    examples: list[Save] = [
        saves.SaveTrust(),
        *records,
        *happened,
        *(save for batch in SINGLE.values() for save in batch),
    ]
    for batch, forget in NOUNS.values():
        examples += [*batch, *([forget] if forget else [])]
    kinds = {type(save) for save in examples}
    assert kinds == set(saves.SAVES)
    assert NOUNS.keys() | SINGLE.keys() | {"doubtful"} == {field.name for field in fields(Saved)}


def event(number: int) -> LogEvent:
    return LogEvent(number, 1.5, EventKind.FINISHED, JobId("j"), "ann", exit_code=0, notify=("hook",))


def past_job() -> PastJob:
    return PastJob(
        JobId("j"), "j", "ann", "ann", "ml", "", "", JobState.FAILED, 1.0, 2.0, 3.0, 1, 1, 1, 250, ("a1",), {"k": "v"}
    )  # fmt: skip


def test_events_are_there_after_a_restart_by_number_and_are_forgotten_up_to_one(opened: Reopened) -> None:
    assert opened.store.events() == []
    opened.store.save([saves.KeepEvent(event(number)) for number in (3, 1, 2)])
    opened.after_a_restart()
    assert opened.store.events() == [event(1), event(2), event(3)]
    opened.store.save([saves.ForgetEvents(2)])
    assert opened.store.events() == [event(3)]


def test_a_new_store_is_empty(opened: Reopened) -> None:
    assert opened.store.load() == EMPTY


def faults(loaded: Saved, wanted: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a state that are not as wanted; those that are not named must be empty."""
    expected = saved(**wanted)
    return {
        each.name: getattr(loaded, each.name)
        for each in fields(Saved)
        if getattr(loaded, each.name) != getattr(expected, each.name)
    }


def test_store_gives_back_what_was_saved_last_and_in_its_order(opened: Reopened) -> None:
    opened.store.save(save for batch, _ in NOUNS.values() for save in reversed(batch[1:]))
    wanted = {name: latest(batch[1:]) for name, (batch, _) in NOUNS.items()}
    assert faults(opened.after_a_restart(), wanted) == {}


def test_store_replaces_a_thing_by_its_later_save(opened: Reopened) -> None:
    for number in (0, 1):
        opened.store.save(batch[number] for batch, _ in NOUNS.values())
    wanted = {name: (noun_of(batch[1]),) for name, (batch, _) in NOUNS.items()}
    assert faults(opened.after_a_restart(), wanted) == {}


def test_store_has_one_of_a_single_thing_the_last(opened: Reopened) -> None:
    for number in (0, 1):
        opened.store.save(pair[number] for pair in SINGLE.values())
        wanted = {name: noun_of(pair[number]) for name, pair in SINGLE.items()}
        assert faults(opened.after_a_restart(), wanted) == {}


def test_store_forgets_one_thing_alone_and_may_forget_it_twice(opened: Reopened) -> None:
    opened.store.save(save for batch, _ in NOUNS.values() for save in batch)
    wanted = {name: latest(batch) for name, (batch, _) in NOUNS.items()}
    for name, (batch, forget) in NOUNS.items():
        if forget is None:
            continue
        gone = [noun_of(save) for save in batch if saves.subject(save) == saves.subject(forget)]
        wanted[name] = tuple(noun for noun in latest(batch) if noun not in gone)
        assert len(wanted[name]) == len(latest(batch)) - 1
    for _ in range(2):
        opened.store.save(forget for _, forget in NOUNS.values() if forget)
        assert faults(opened.after_a_restart(), wanted) == {}


def test_a_jobs_tasks_are_forgotten_with_it(opened: Reopened) -> None:
    opened.store.save([saves.SaveJob(job()), saves.SaveTask(task()), saves.SaveTask(task("j0.1", "j0"))])
    opened.store.save([saves.ForgetJob(JobId("j1"))])
    assert opened.after_a_restart() == saved(tasks=(task("j0.1", "j0"),))


def test_saves_of_one_batch_are_done_in_their_order(opened: Reopened) -> None:
    opened.store.save([saves.SaveJob(job()), saves.ForgetJob(JobId("j1")), saves.SaveJob(job("j2"))])
    assert opened.after_a_restart() == saved(jobs=(job("j2"),))


def test_a_batch_that_breaks_off_leaves_nothing(opened: Reopened) -> None:
    def broken() -> Iterator[Save]:
        yield saves.SaveJob(job())
        raise RuntimeError("no more")

    opened.store.save([saves.SaveJob(job("j0"))])
    with pytest.raises(RuntimeError):
        opened.store.save(broken())
    assert opened.after_a_restart() == saved(jobs=(job("j0"),))


def test_an_empty_batch_changes_nothing(opened: Reopened) -> None:
    opened.store.save([saves.SaveJob(job())])
    opened.store.save([])
    assert opened.after_a_restart() == saved(jobs=(job(),))


def test_store_takes_a_batch_again(opened: Reopened) -> None:
    """After a disk was full it is not known whether the first time has come through."""
    batch = [save for each in (*(each for each, _ in NOUNS.values()), *SINGLE.values()) for save in each]
    batch += [forget for _, forget in NOUNS.values() if forget]
    opened.store.save(batch)
    once = opened.store.load()
    opened.store.save(batch)
    assert opened.after_a_restart() == once


def test_records_and_events_that_are_given_again_are_there_once(opened: Reopened) -> None:
    closed = Closed(replace(span(), wanted_milli=1000), 2 * 86_400_000, 0, 0, SpanEnd.FINISHED)
    batch: list[Save] = [saves.KeepRecord(closed), saves.KeepEvent(event(1)), saves.KeepJob(past_job())]
    opened.store.save(batch)
    once = use_of(opened)
    opened.store.save(batch)
    opened.after_a_restart()
    assert opened.store.events() == [event(1)]
    assert use_of(opened) == once
    if opened.file is not None:
        assert once != [[]]


def use_of(opened: Reopened) -> object:
    """What reports read; None: they read it elsewhere."""
    if opened.file is None:
        return None
    return SqliteRecords(opened.file).use([0, 4], 0, waits=True)


def test_trust_ends_the_doubt_in_an_old_state(opened: Reopened) -> None:
    opened.doubt()
    assert opened.store.load().doubtful
    opened.store.save([saves.SaveTrust()])
    assert opened.after_a_restart() == EMPTY


def test_store_keeps_saves_of_before_and_after_a_restart(opened: Reopened) -> None:
    opened.store.save([saves.SaveFramework("f"), saves.SaveJob(job("j0"))])
    opened.after_a_restart()
    opened.store.save([saves.SaveJob(job())])
    opened.after_a_restart()
    opened.store.save([saves.ForgetJob(JobId("j0"))])
    assert opened.after_a_restart() == saved(framework_id="f", jobs=(job(),))


def test_store_tests_run_on_both_stores_of_a_scheduler() -> None:
    """All that say what a store does take it from one fixture, which has every kind."""
    here = sys.modules[__name__]
    alone = {
        "test_the_examples_are_of_each_kind_of_save_and_of_each_thing_saved",
        "test_store_tests_run_on_both_stores_of_a_scheduler",
        "test_a_store_in_memory_begins_with_what_an_earlier_run_left",
    }
    tests = {name: value for name, value in vars(here).items() if name.startswith("test_")}
    assert {
        name for name, test in tests.items() if "opened" not in inspect.signature(test).parameters
    } == alone
    assert {"sqlite", "replicated"} <= set(KINDS)


def test_a_store_in_memory_begins_with_what_an_earlier_run_left() -> None:
    earlier = MemoryStore()
    for batch, _ in NOUNS.values():
        earlier.save(batch)
    assert MemoryStore(earlier.load()).load() == earlier.load() != EMPTY
