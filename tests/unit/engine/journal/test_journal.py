"""The journal: what it keeps is exact, what it writes is bounded, and its end does not end the scheduler."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.api.asking import job_kill, new_job
from mesos_gpu.cli import main
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine import journal as kept
from mesos_gpu.engine.indexes.memory import Reconciliation, SecretRead
from mesos_gpu.engine.parts.gpus import GpuPart
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import PARTS, State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import Damaged, MesosGpuError, NotFound
from mesos_gpu.model.access.caller import Narrowing
from mesos_gpu.model.access.document import AccessDocument, Binding, Shared
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import App, Group, SecretRef
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, GroupShape, RootVersion
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.apps.split import Mode, TrafficSplit
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking, BookingSpec
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.healthcheck import Answer, CheckHealth, Readiness
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.unknown import Label, Listed
from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec, Shape
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.apps.rollout.plan import plan
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.simulate.replay import files_of, replay
from mesos_gpu.wire import journal as wire
from tests.chaos import run as chaos
from tests.chaos import world
from tests.chaos.acts import do
from tests.chaos.violation import Violation
from tests.doubles.builders import offer, spec
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

SETTINGS = Settings.of("executor", "monitor", aging_step_s=inf, queue_limits={"b": 1, "a": 2})
APP = App("/a", cmd="true", env={"A": "b", "C": SecretRef("c")}, instances=2)
FAILED_CHECK = CheckHealth(0.1, 0.2, 1 / 3, "HTTP status 500", 2)
READINESS = Readiness("web", False, Answer(503, "text/plain", "loading"))
EVENTS: tuple[ev.Event, ...] = (
    ev.Registered("fw", "http://m"),
    *(ev.Disconnected(), ev.FrameworkRemoved()),
    ev.OffersArrived((offer("o1", cpus=0.1 + 0.2, gpus=2),)),
    ev.OfferRescinded(OfferId("o1")),
    ev.StatusArrived(Status(TaskId("t"), "TASK_RUNNING", AgentId("a"), data=b"\x00\xff")),
    ev.AgentLost(AgentId("a")),
    ev.JobSubmitted(JobId("j"), spec(env={"b": "1", "a": "✓ \n"}, timeout_s=0.1, gpu_model=("A", "B"))),
    *(ev.KillRequested(JobId("j")), ev.ArrayKillRequested(JobId("s"), "3-7")),
    ev.ResizeRequested(JobId("j"), {"gpu_memory_mib": 1024, "gpu_memory_max_mib": None}, True),
    ev.ResizeWithdrawn(JobId("j")),
    ev.CheckpointTold(JobId("j1")),
    *(ev.KeepAsked(JobId("j1"), 3600.0, None, "ann"), ev.KeepWithdrawn(JobId("j1"))),
    ev.VolumeRemoved("ann", "data"),
    ev.DrainRequested(Target.GPU, "g", "why", "ann", 1 / 3),
    ev.UndrainRequested(Target.NODE, "n"),
    ev.ResetRequested(GpuId("g"), "r", "why"),
    ev.AppsChanged("d", Group("/", (APP,)), True, frozenset({"/a"}), {"/a": ("i",)}),
    ev.DeploymentDeleted("d", "e", force=True),
    ev.DelayReset("/a"),
    ev.HealthFound(TaskId("t"), False, "HTTP check failed", (FAILED_CHECK,)),
    ev.ReadinessFound(TaskId("t"), READINESS),
    ev.SplitSet(TrafficSplit("web", {"/b": 90, "/a": 10}, 1, 80, ("h",), Mode.TCP)),
    ev.SplitDropped("web"),
    ev.BudgetGranted("ml", "*", -3_600_000_000),
    ev.BookingMade("b1", BookingSpec("b", "ml", 8, "Tue 09:00", 60, "Europe/Vienna"), "ann"),
    *(ev.BookingChanged("b1", BookingSpec("b", "ml", 8, "now", 60)), ev.BookingCancelled("b1")),
    ev.QueuesChanged(QueueDocument(queues={"ml": QueueSpec(weight=3)}), 3, 600.0),
    ev.AccessChanged(
        AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),), shares={"ml": (Shared.JOBS,)}), 3
    ),
    ev.TokenCreated(
        Token("a1", "ann", "", "", 0.0, 0.0, ("ml",), Narrowing(("job:*",), ("ml",))), 1 / 3, 0.1
    ),
    *(ev.TokenRevoked("a1"), ev.TokenUsed("a1", "::1")),
    ev.TasksListed(
        (Listed(TaskId("t"), AgentId("a"), "TASK_RUNNING", label=Label(JobId("j"), (GpuId("g"),))),)
    ),
    ev.RoleRead(Role("gpu", 2.0, {"gpus": 3.0}, used={"gpus": 1.0}, frameworks=("f",))),
    ev.SecretsRead({"team/hf": "", "team/s3": "there is none"}),
    ev.UnknownAdopted(TaskId("t")),
    ev.UnknownKilled(TaskId("t")),
    ev.Tick(),
    ev.Match(),
)


class Recorder:
    """Stands in the place of `step` in a chaotic world, and journals it as a daemon does."""

    def __init__(self, directory: Path, most_bytes: int = 1 << 30) -> None:
        self.directory, self.most_bytes = directory, most_bytes
        self.journal, self.state = Journal(directory, most_bytes), State(0.0)

    def __call__(self, state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        if state is not self.state:  # the scheduler has started anew
            self.journal.close()
            self.journal, self.state = Journal(self.directory, self.most_bytes), state
            self.journal.begin(state, settings)
        outcome: kept.Outcome = []
        try:
            outcome = step(state, event, now, settings)
        except Exception as error:
            outcome = error
            raise
        finally:
            self.journal.note(event, outcome, now)
        if isinstance(event, ev.Match):
            self.journal.flush(state, settings)
        return outcome


def stepped(
    state: State, event: ev.Event, now: float, settings: Settings
) -> tuple[list[fx.Effect], MesosGpuError | None]:
    try:
        return step(state, event, now, settings), None
    except MesosGpuError as error:
        return [], error


def rough_life(directory: Path, steps: int, most_bytes: int = 1 << 30, *, seed: int = 8) -> None:
    """Journal a scheduler's life in one chaotic episode, restarts included."""
    recorder = Recorder(directory, most_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "step", recorder)
        happen(seed, steps)
    recorder.journal.close()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a short life; only to be read."""
    directory = tmp_path_factory.mktemp("journal")
    rough_life(directory, 200)
    return directory


@pytest.fixture
def own(short: Path, tmp_path: Path) -> Path:
    """Copy the journal, to be changed."""
    return Path(shutil.copytree(short, tmp_path / "own"))


def happen(seed: int, steps: int) -> None:
    """Chaos; whether all is well in it is for other tests."""
    place, chance = world.World(seed), random.Random(seed)
    for act in chaos.acts_of(chance, steps):
        with contextlib.suppress(Violation):
            do(place, act)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", "replay", *map(str, words)], prog_name="mesos-gpu")


def edit(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the documents of a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def head_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text().partition("\n")[0])  # type: ignore[no-any-return]


def state_of(path: Path) -> Path:
    return path.with_name(wire.state_name(path.name))


def launching(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The first step that launched something."""
    steps = (step for line in lines[1:] for step in line["steps"])
    return next(step for step in steps if any(w.startswith("Launch") for w in step.get("decided", ())))


# --- exact


def test_journal_brings_every_event_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(ev.Event)), "an event is missing here"
    for event in EVENTS:
        batch = wire.decode_batch(kept.batch_line(7, 0.1, [(event, [])]))
        assert (batch.seq, batch.at) == (7, 0.1)
        assert kept.EVENTS.decode(batch.steps[0].event) == event


def test_journal_brings_settings_back_as_they_were() -> None:
    assert wire.decode_flat(wire.encode_flat(SETTINGS), Settings) == SETTINGS
    read = wire.decode_flat(wire.encode_flat(SETTINGS), Settings)
    assert list(read.queue.queue_limits) == ["b", "a"]


@pytest.mark.parametrize(
    ("seeds", "acts"), [(range(5, 6), 60), pytest.param(range(5, 11), 100, marks=pytest.mark.long)]
)
def test_journal_brings_fields_of_the_state_back_as_they_were(
    seeds: range, acts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set[str]()
    empty, names, of = State(0.0), kept.STATES.names, kept.STATES.field_of

    def both(state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        """Step the state and one that went through JSON: the same effects, and the same state after."""
        twin = kept.STATES.decode(kept.STATES.encode(state))
        assert twin == state
        seen.update(name for name in names if of(state, name) != of(empty, name))
        (wanted, error), again = stepped(state, event, now, settings), stepped(twin, event, now, settings)
        assert again == (wanted, error) or str(again[1]) == str(error)
        for name in names:
            one, other = of(state, name), of(twin, name)
            assert one == other
            assert not isinstance(one, dict) or list(one) == list(other), f"the order of {name}"
        if error:
            raise error
        return wanted

    monkeypatch.setattr(world, "step", both)
    for seed in seeds:
        happen(seed, acts)
    parts = [field for part in PARTS for field in dataclasses.fields(getattr(empty, part))]
    assert set(names) == {"started_at", *(each.name for each in parts if not each.metadata.get("derived"))}
    # What is not in each of these worlds.
    rare = {"released", "notified", "idle_since", "reconciliation", "contested", "resets"}
    rare |= {"idle", "uncovered", "gone_covers", "keepers", "keeper_failures", "reserve_from", "unreserved"}
    rare |= {"doubtful", "unknown", "listing_at", "sharers", "covers", "roles"}
    rare |= {"access_versions", "queue_versions", "tokens", "tokens_swept_at"}
    rare |= {"past_uses", "past_uses_swept_at", "budget_uses", "folded_day", "arrays", "members", "bookings"}
    rare |= {"splits", "backoffs", "vacant", "healths", "check_results", "readiness", "secrets"}
    rare |= {"idlenesses", "span_works", "gpu_work", "checked", "volumes"}
    if len(seeds) > 1:
        assert seen | rare == set(names), "no world has brought about a field that was added"


def test_journal_brings_rare_fields_of_the_state_back() -> None:
    state = State(
        1.5,
        mesos=MesosPart(idle_since=0.1, reconciliation=Reconciliation(0.1, 0.2, 3)),
        gpus=GpuPart(contested={GpuId("g"): 1 / 3}),
    )
    state.work.released[TaskId("t")] = 0.7
    state.gpus.resets[GpuId("z")] = state.gpus.resets[GpuId("b")] = None
    info, root = VersionInfo(1.5, 1.25, 1 / 3), Group("/", (APP,))
    state.apps.catalog = AppCatalog(root, {"/a": info})
    state.apps.app_versions["/a"] = [AppVersion(1.5, APP)]
    state.apps.roots = [
        RootVersion(1.5, GroupShape("/", (("/a", 1 / 3),), (GroupShape("/g"),), ("/b",), False))
    ]
    state.apps.deployments["d"] = Deployment(
        "d", 1.5, plan(Group("/"), root), {"/a": info}, 1, {"/a": "waits"}
    )
    state.apps.splits["web"] = TrafficSplit("web", {"/b": 90, "/a": 10})
    state.rights.access_versions[3] = AccessDocument(3, 1 / 3, "ann", shares={"ml": (Shared.OUTPUT,)})
    state.quota.queue_versions[2] = QueueDocument(
        2, 1 / 3, "ann", queues={"ml": QueueSpec(guarantee_gpus={"a": Guarantee(16000, (Shape(2, 8),))})}
    )
    state.quota.past_uses["ml", "ann"] = PastUse("ml", "ann", 1 << 60, 1, 8000)
    state.rights.tokens["a1"] = Token("a1", "ann", "", "", 0.1, 0.2, used_at=1 / 3)
    state.apps.instances["/a"] = {JobId("j"): None, JobId("b"): None}
    state.apps.vacant = {"/a": [JobId("j")]}
    state.apps.changed_apps, state.apps.ended_instances = {"/a"}, [JobId("j")]
    state.apps.backoffs = {("/a", 1.5): (2, 1 / 3)}
    state.put(Booking("b1", BookingSpec("b", "ml", 8, "now", 60), "ann", 0.1, "2026-12-01", 7, 67))
    state.put(JobArray(JobId("s"), spec(array="0-9%2"), 0.1, 9, left=((0, 9),)))
    state.apps.healths = {TaskId("t"): None, TaskId("u"): False}
    state.apps.check_results = {TaskId("u"): (FAILED_CHECK,)}
    state.apps.readiness = {TaskId("t"): READINESS}
    state.work.secrets = {
        "team/hf": SecretRead(0.1, True, 1 / 3),
        "a": SecretRead(problem="none", failures=2),
    }
    restored = kept.STATES.decode(kept.STATES.encode(state))
    assert restored == state
    assert list(restored.gpus.resets) == ["z", "b"]
    assert restored.mesos.reconciliation is not state.mesos.reconciliation


def test_journal_head_has_the_field_names_of_earlier_journals() -> None:
    keys = json.loads(kept.STATES.encode(State(1.5))).keys()
    assert {"services", "stirred", "fallen"} <= keys
    assert not {"catalog", "changed_apps", "ended_instances"} & keys


# --- replayed


@pytest.mark.parametrize(
    ("seed", "acts", "most_bytes"),
    [(3, 150, 1 << 17), pytest.param(14, 700, 1 << 19, marks=pytest.mark.long)],
)
def test_replay_of_a_rough_life_comes_to_the_same_state(
    tmp_path: Path, seed: int, acts: int, most_bytes: int
) -> None:
    rough_life(tmp_path, acts, most_bytes, seed=seed)
    files = files_of(tmp_path)
    assert {head_of(path)["follows"] for path in files} == {False, True}, "started anew, and files were full"
    seqs: list[int] = []
    result = replay(files, told=lambda step: seqs.append(step.seq))
    assert result.first_difference is None
    assert result.warnings == []
    assert seqs == list(range(seqs[0], seqs[0] + result.events))
    assert result.events > acts
    assert result.decisions > acts // 14
    for path in files:  # each by itself, too
        assert replay([path]).first_difference is None


@pytest.mark.long
def test_replay_in_another_process_decides_the_same(short: Path) -> None:
    program = [sys.executable, "-m", "mesos_gpu", "simulate", "replay", str(short), "--json"]
    done = subprocess.run(
        program, capture_output=True, check=False, timeout=60, env={**os.environ, "PYTHONHASHSEED": "77"}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["same"], "no order of a set may decide"


def test_replay_can_be_read_step_by_step(own: Path) -> None:
    done = call(own, "--json", "--explain")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    assert (printed["same"], printed["first_difference"], printed["warnings"]) == (True, None, [])
    assert sum(words.startswith("Launch ") for step in printed["steps"] for words in step["decided"]) > 3
    assert printed["files"] == len(files_of(own))
    done = call(own, "--until", "60", "--explain")
    assert "60 events of 1 files" in done.output
    assert "Match: Launch " in done.output


def test_replay_reports_the_first_difference(own: Path) -> None:
    path = files_of(own)[0]
    launch: list[str] = []

    def other_gpus(lines: list[dict[str, Any]]) -> None:
        step = launching(lines)
        launch.extend(step["decided"])
        step["decided"] = [words.replace(" on a", " on b") for words in launch]

    edit(path, other_gpus)
    done = call(own, "--json")
    assert done.exit_code == 1
    printed = json.loads(done.output)
    assert not printed["same"]
    difference = printed["first_difference"]
    assert (difference["what"], difference["file"]) == ("decisions", path.name)
    assert difference["replayed"] == launch != difference["recorded"]
    assert printed["events"] < replay(files_of(own), until=10**6).events + 1
    done = call(path)
    assert done.exit_code == 1
    assert f"step {difference['seq']} in {path.name} differs in its decisions" in done.output
    assert "\nthen  Launch " in done.output
    assert "\nnow   Launch " in done.output


def test_replay_compares_what_is_saved_too(own: Path) -> None:
    path = files_of(own)[0]
    edit(path, lambda lines: launching(lines).update(digest="0" * 16))
    first = replay([path]).first_difference
    assert first is not None
    assert first.what == "saves"
    assert any(words.startswith("SaveTask ") for words in first.replayed)


def test_replay_compares_the_calls_of_another_version(own: Path) -> None:
    path = files_of(own)[0]
    edit(path, lambda lines: (lines[0].update(program="0.0.1"), launching(lines).update(digest="0" * 16))[0])
    result = replay([path])
    assert result.first_difference is None
    (warning,) = result.warnings
    assert "version 0.0.1" in warning


def test_replay_answer_has_no_secrets_of_jobs(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 1 << 20), State(0.0)
    journal.begin(state, SETTINGS)
    event = ev.JobSubmitted(JobId("j"), spec(env={"TOKEN": "hunter2"}))
    step(state, event, 1.0, SETTINGS)
    journal.note(event, [], 1.0)
    journal.close()
    done = call(tmp_path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.output)["first_difference"]["event"]["JobSubmitted"]["spec"]["env"] == {
        "TOKEN": "…"
    }
    assert "hunter2" not in done.output
    assert "hunter2" not in call(tmp_path).output


# --- damaged, or not there


def test_journal_line_torn_at_the_end_is_left_out(own: Path) -> None:
    path = files_of(own)[-1]
    path.write_bytes(path.read_bytes()[:-9])
    result = replay(files_of(own))
    assert result.first_difference is None
    assert "torn" in result.warnings[0]
    done = call(own)
    assert done.exit_code == 0
    assert "torn" in done.output


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"seq":1,"at":0.0,"steps":[]}\n', b'{"journal":9}\n'])
def test_journal_file_of_another_kind_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal-00000001.jsonl").write_bytes(line)
    with pytest.raises(Damaged):
        replay(files_of(tmp_path))


def test_journal_damaged_in_its_middle_is_refused(own: Path) -> None:
    path = files_of(own)[0]
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*whole[:3], *whole[4:])))
    with pytest.raises(Damaged, match=r"step \d+ stands where \d+ should"):
        replay([path])
    path.write_bytes(b"".join((*whole[:3], b'{"seq"\n', *whole[4:])))
    assert call(path).exit_code == 65


def test_journal_with_a_missing_file_is_reported(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    journal.close()
    files = files_of(tmp_path)
    assert replay(files).warnings == []
    result = replay([files[0], *files[2:]])
    assert result.first_difference is None
    assert "are missing" in result.warnings[0]


def test_replay_reports_a_state_that_does_not_follow(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    journal.close()
    beside = state_of(files_of(tmp_path)[1])
    edit(beside, lambda lines: lines[0]["state"].update(contested=[["g", 1.0]], swept_at=9.0))
    first = replay(files_of(tmp_path)).first_difference
    assert first is not None
    assert first.what == "state"
    assert first.recorded == ("contested: g", "swept_at: 9.0")
    assert first.replayed == ("contested: nothing more", "swept_at: 0.0")


def test_missing_journal_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        files_of(tmp_path)
    assert call(tmp_path / "nope").exit_code == 66


# --- written


def feed(journal: Journal, state: State, count: int, now: float = 1.0, *, waits: bool = True) -> None:
    """Step so many batches. `waits`: for the writer of a state after each, as if time passed."""
    for _ in range(count):
        if waits and journal._writer is not None:
            journal._writer.join()
        for event in (ev.Tick(), ev.Match()):
            journal.note(event, step(state, event, now, SETTINGS), now)
        journal.flush(state, SETTINGS)


# --- of a daemon


class Rig:
    def __init__(self, directory: Path) -> None:
        self.clock, self.store = FakeClock(), RecordingStore()
        journal = Journal(directory, 1 << 20)
        self.daemon = Daemon(self.store, self.store.load(), FakeDriver(), self.clock, SETTINGS, journal)
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.daemon.put(ev.Registered("fw", "http://m"))


def test_journal_keeps_the_batches_of_a_daemon_with_refusals(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    job = rig.daemon.request(new_job(spec(name="train"))).result(60)
    with pytest.raises(NotFound):
        rig.daemon.request(ev.DrainRequested(Target.GPU, "g9", "why")).result(60)
    rig.clock.time += 1.0
    rig.daemon.request(job_kill(job.id)).result(60)
    rig.daemon.stop()
    done = call(tmp_path, "--json", "--explain")
    printed = json.loads(done.output)
    assert (printed["same"], printed["refused"]) == (True, 1)
    decided = [words for step in printed["steps"] for words in step["decided"]]
    assert any(words.startswith(f"Launch {job.id}.1 on a1 ") for words in decided)
    assert any("there is no GPU g9" in words for words in decided)
    assert any(words.startswith("Kill ") for words in decided)


def test_replay_is_unchanged_by_a_reader_of_the_state(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    job = rig.daemon.request(new_job(spec(gpus=4))).result(60)
    rig.daemon.read(lambda view: explain_job(view, job.id)).result(60)
    rig.daemon.request(new_job(replace(spec(), name="other"))).result(60)
    rig.daemon.stop()
    assert replay(files_of(tmp_path)).first_difference is None


def test_journal_file_ends_with_the_step_that_broke_the_engine(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.daemon.put(ev.OffersArrived(None))  # type: ignore[arg-type] # no such event can come
    rig.daemon.request(new_job(spec())).result(60)
    rig.daemon.stop()
    assert rig.daemon.failure is None
    broken, anew = files_of(tmp_path)
    last = json.loads(broken.read_text().splitlines()[-1])
    assert last["steps"][-1]["failed"].startswith("TypeError: ")
    assert json.loads(anew.read_text().splitlines()[0])["follows"] is False
