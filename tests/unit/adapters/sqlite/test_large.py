"""Large fields of jobs and arrays are in the state's file once by their digest, as long as a row refers to them."""

import os
import random
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.replicated.log import decoded, encoded
from mesos_gpu.adapters.sqlite import schema, seal
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite.large import MIN
from mesos_gpu.adapters.sqlite_store import SqliteStore, restore
from mesos_gpu.cli import main
from mesos_gpu.errors import Damaged
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.saves import ForgetArray, ForgetJob, Save, SaveArray, SaveJob
from tests.doubles.memory_store import MemoryStore
from tests.unit.adapters.sqlite.children import in_a_child

LARGE: Final = "x" * 250_000
STATES: Final = Path(__file__).parents[3] / "data" / "states"


def job(id: str, env: Mapping[str, str], *, owner: str = "ann", sequence: int = 1, **spec: Any) -> Job:
    return Job(JobId(id), JobSpec(id, command="true", env=dict(env), **spec), 1.0, sequence, owner=owner)


def array(id: str, env: dict[str, str], owner: str = "ann") -> JobArray:
    return JobArray(
        JobId(id),
        JobSpec(id, command="true", env=dict(env), array="0-9"),
        1.0,
        1,
        owner=owner,
        left=((0, 9),),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as store:
        yield store


def rows(store: SqliteStore, table: str) -> list[tuple[Any, ...]]:
    return store._db.execute(f"SELECT * FROM {table}").fetchall()


def written_by(store: SqliteStore, *batch: Save) -> int:
    """Return how many bytes a batch adds to the log of the file."""
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.save(batch)
    return Path(f"{store._path}-wal").stat().st_size


def test_large_environments_that_are_equal_share_one_row_and_object(store: SqliteStore) -> None:
    there = [job(f"j{n}", {"B": "1", "DATA": LARGE}, sequence=n) for n in range(5)]
    mixed = replace(there[4], spec=replace(there[4].spec, env={"DATA": LARGE, "B": "1"}))  # in another order
    store.save([SaveJob(each) for each in (*there[:4], mixed)])
    store.save([SaveArray(array("a", {"B": "1", "DATA": LARGE}))])
    assert len(rows(store, "large_fields")) == 1
    assert all(len(body) < 5000 for *_, body in rows(store, "jobs") + rows(store, "arrays"))
    saved = store.load()
    assert list(saved.jobs) == there
    assert len({id(env) for env in (*(each.spec.env for each in saved.jobs), saved.arrays[0].spec.env)}) == 1


def test_large_environment_is_not_written_when_the_job_changes(store: SqliteStore) -> None:
    first = job("j", {"DATA": LARGE})
    assert written_by(store, SaveJob(first)) > len(LARGE)
    assert written_by(store, SaveJob(replace(first, state=JobState.RUNNING))) < 60_000
    assert written_by(store, SaveJob(job("k", {"DATA": LARGE}))) < 60_000, "another's, with an equal one"
    store.load()
    [loaded, _] = store.load().jobs
    assert written_by(store, SaveJob(replace(loaded, state=JobState.FINISHED))) < 60_000, (
        "as it is after a start"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"a": LARGE}},
        {"argv": ("sh", "-c", LARGE), "command": None},
        {"command": LARGE},
        {"env": {"A": LARGE}, "labels": {"a": LARGE}, "notify": ("x", "y" * 2000)},
    ],
)
def test_large_field_of_any_kind_is_written_once(store: SqliteStore, fields: dict[str, Any]) -> None:
    spec = replace(JobSpec("j", command="true"), **fields)
    first = Job(JobId("j"), spec, 1.0, 1)
    written_by(store, SaveJob(first))
    assert written_by(store, SaveJob(replace(first, state=JobState.RUNNING))) < 60_000
    assert store.load().jobs == (replace(first, state=JobState.RUNNING),)


def test_large_fields_are_split_from_large_jobs_alone(store: SqliteStore) -> None:
    spread = JobSpec("j", command="c" * 600, env={"A": "e" * 600}, labels={"a": "l" * 600})
    small = [job("k", {"A": "b"}), Job(JobId("j"), spread, 1.0, 2)]
    store.save([SaveJob(each) for each in small])
    assert rows(store, "large_fields") == []
    bodies = {id: seal.opened("jobs", (id, sequence), body) for id, sequence, body in rows(store, "jobs")}
    assert bodies == {each.id: msgspec.json.encode(each) for each in small}


def test_large_fields_are_not_shared_between_owners(store: SqliteStore) -> None:
    """A save that is quicker, or a file that grows less, would tell who guesses another's environment."""
    env = {"TOKEN": "s" * 5000}
    store.save([SaveJob(job("j", env))])
    other = [job("k", env, owner="bob"), job("l", env, user="ann"), job("m", env, owner="", user="ann")]
    for number, each in enumerate(other):
        store.save([SaveJob(each)])
        assert len(rows(store, "large_fields")) == number + 2
    digests = {digest for digest, _ in rows(store, "large_fields")}
    shown = repr(store.load())
    assert not any(digest in shown for digest in digests)


def test_large_field_row_goes_with_its_last_reference(store: SqliteStore) -> None:
    env = {"DATA": LARGE}
    store.save([SaveJob(job("j", env)), SaveJob(job("k", env)), SaveArray(array("a", env))])
    store.save([ForgetJob(JobId("j"))])
    store.save([SaveJob(job("k", {"DATA": "other" * 1000}))])
    assert len(rows(store, "large_fields")) == 2
    store.save([ForgetArray(JobId("a")), ForgetJob(JobId("none"))])
    assert len(rows(store, "large_fields")) == 1
    store.save([SaveJob(job("k", {}))])
    assert rows(store, "large_fields") == []


def model_of(jobs: MemoryStore) -> set[tuple[str, str]]:
    """Return the owners and environments that are to be there."""
    wanted = [(each.owner, each.spec) for each in jobs.jobs.values()]
    wanted += [(each.owner, each.spec) for each in jobs.arrays.values()]
    return {(owner, spec.env["DATA"]) for owner, spec in wanted if len(spec.env.get("DATA", "")) > MIN}


def any_batch(chosen: random.Random) -> Iterator[Save]:
    for _ in range(chosen.randint(1, 4)):
        id, owner = JobId(f"j{chosen.randint(0, 5)}"), chosen.choice(["ann", "bob"])
        env = chosen.choice([{}, {"DATA": "a"}, *({"DATA": char * 3000} for char in "abc")])
        match chosen.randint(0, 4):
            case 0:
                yield ForgetJob(id)
            case 1:
                yield ForgetArray(id)
            case 2:
                yield SaveArray(array(id, env, owner))
            case _:
                yield SaveJob(job(id, env, owner=owner, sequence=chosen.randint(0, 3)))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_large_fields_kept_are_exactly_those_referred_to(path: Path, seed: int) -> None:
    chosen, model, store = random.Random(seed), MemoryStore(), SqliteStore(path)
    for step in range(60):
        batch = list(any_batch(chosen))
        if chosen.random() < 0.2:  # what the engine has of jobs that were loaded
            batch += [SaveJob(replace(each, attempts=each.attempts + 1)) for each in store.load().jobs[:2]]
        if chosen.random() < 0.15:
            with pytest.raises(RuntimeError):
                store.save(broken(batch))
        else:
            model.save(batch)
            store.save(batch)
        if step % 10 == 9:
            store.close()
            store = SqliteStore(path)
        saved = store.load()
        assert (saved.jobs, saved.arrays) == (model.load().jobs, model.load().arrays)
        assert len(rows(store, "large_fields")) == len(model_of(model))
    store.close()


def broken(batch: list[Save]) -> Iterator[Save]:
    yield from batch
    raise RuntimeError("the batch cannot be read to its end")


def changing() -> list[Save]:
    return [
        SaveJob(job("j", {"DATA": "new" * 1000})),
        ForgetJob(JobId("k")),
        SaveJob(job("l", {"DATA": LARGE})),
    ]


def change(path: Path, kill_at: int) -> int:
    """Save a batch that adds and removes environments; return its statements, or be killed at one of them."""
    store, count = SqliteStore(path), 0

    def traced(_: str) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store._db.set_trace_callback(traced)
    store.save(changing())
    return count


def test_large_fields_survive_a_kill_between_writes(path: Path, tmp_path: Path) -> None:
    old: list[Save] = [SaveJob(job("j", {"DATA": "old" * 1000})), SaveJob(job("k", {"DATA": "gone" * 1000}))]
    for each in (path, tmp_path / "whole.sqlite"):
        with closing(SqliteStore(each)) as store:
            store.save(old)
            before = store.load()
            there = rows(store, "large_fields")
    statements = int(in_a_child(lambda: change(tmp_path / "whole.sqlite", 0))[1])
    assert statements > 15
    for at in (statements // 3, statements // 2, statements - 1):
        assert in_a_child(partial(change, path, at)) == (-signal.SIGKILL, "")
        with closing(SqliteStore(path)) as store:
            assert store.load() == before
            assert rows(store, "large_fields") == there


def test_large_environments_of_a_failed_batch_are_written_again(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        first = job("j", {"DATA": LARGE})
        with pytest.raises(RuntimeError):
            store.save(broken([SaveJob(first)]))
        assert rows(store, "large_fields") == []
        store.save([SaveJob(first)])
        assert store.load().jobs == (first,)


DAMAGE: Final = (
    "UPDATE large_fields SET body = CAST(replace(CAST(body AS TEXT), 'xxx', 'xxy') AS BLOB)",
    "DELETE FROM large_fields",
    "UPDATE large_fields SET digest = 'another'",
    "UPDATE large_fields SET body = (SELECT body FROM jobs)",
    "INSERT INTO large_fields VALUES ('another', (SELECT body FROM large_fields))",
    "UPDATE jobs SET body = CAST(replace(CAST(body AS TEXT), '@', '{') AS BLOB)",
)


def damaged(path: Path, damage: str) -> None:
    with closing(SqliteStore(path)) as store:
        store.save([SaveJob(job("j", {"DATA": LARGE}))])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)


@pytest.mark.parametrize("damage", DAMAGE)
def test_large_environment_that_is_damaged_is_refused(path: Path, damage: str) -> None:
    damaged(path, damage)
    with pytest.raises(Damaged, match=str(path)), closing(SqliteStore(path)) as store:
        store.load()


@pytest.fixture(scope="module")
def _scheduler() -> None:
    """Import the scheduler, which takes longer than the test."""
    import mesos_gpu.scheduler.__main__  # noqa: F401


@pytest.mark.usefixtures("_scheduler")
def test_large_environment_that_is_damaged_stops_the_scheduler(path: Path) -> None:
    damaged(path, DAMAGE[0])
    done = CliRunner().invoke(
        main, ["scheduler", "--master", "127.0.0.1:1", "--port", "0", "--state", str(path)]
    )
    assert done.exit_code == os.EX_DATAERR, done.stderr
    assert f"the scheduler's state in {path} cannot be read: a row of large_fields" in done.stderr


def schema_16(path: Path, *jobs: Job) -> None:
    """Write a state of the schema before, in which jobs have all their fields."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript((STATES / "16.sql").read_text())
        for each in jobs:
            columns = (each.id, each.sequence)
            body = seal.sealed("jobs", columns, msgspec.json.encode(each))
            db.execute("INSERT INTO jobs VALUES (?, ?, ?)", (*columns, body))
        for statement, values in seal.fact("sum", str(schema.sum_of(db))):
            db.execute(statement, values)


def test_large_environments_of_the_schema_before_are_read_and_shared_once_saved(path: Path) -> None:
    old = [job(f"large{n}", {"DATA": LARGE}, sequence=100 + n) for n in range(3)]
    schema_16(path, *old)
    with closing(SqliteStore(path)) as store:
        assert list(store.load().jobs[-3:]) == old
        assert rows(store, "large_fields") == []
        later = [replace(each, state=JobState.RUNNING) for each in store.load().jobs[-3:]]
        store.save([SaveJob(each) for each in later[:2]])
        assert list(store.load().jobs[-3:]) == [*later[:2], old[2]]
        assert len(rows(store, "large_fields")) == 1
    with closing(SqliteStore(path)) as store:
        assert list(store.load().jobs[-3:]) == [*later[:2], old[2]]
    with closing(sqlite3.connect(schema.before(path, schema.steps()[-1][0]))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (16,)
        assert len(db.execute("SELECT 1 FROM jobs WHERE length(body) > 200000").fetchall()) == 3


def test_large_environments_are_in_a_backup_and_restored(path: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.save([SaveJob(job("j", {"DATA": LARGE}))])
        backup(path, tmp_path / "copy.sqlite")
        store.save([ForgetJob(JobId("j"))])
    restore(tmp_path / "copy.sqlite", path)
    with closing(SqliteStore(path)) as store:
        assert store.load().jobs == (job("j", {"DATA": LARGE}),)
        assert len(rows(store, "large_fields")) == 1


def test_large_fields_are_shared_in_a_copy_that_follows_a_log(store: SqliteStore) -> None:
    first = job("j", {"DATA": LARGE})
    for state in (JobState.PENDING, JobState.RUNNING):
        store.save(
            decoded(encoded([SaveJob(replace(first, state=state)), SaveJob(job("k", first.spec.env))]))
        )
    assert len(rows(store, "large_fields")) == 1
    assert written_by(store, *decoded(encoded([SaveJob(first)]))) < 60_000


def test_large_fields_known_of_requests_are_forgotten_with_them(store: SqliteStore) -> None:
    for number in range(20):
        store.save([SaveJob(job("j", {"DATA": f"{number}" * 3000}))])
    assert len(store._large._known) <= 1


@pytest.mark.parametrize("table", ["jobs", "arrays"])
def test_large_field_references_are_found_by_an_index(store: SqliteStore, table: str) -> None:
    asked = f"SELECT 1 FROM {table} WHERE substr(body, 1, 65) = ? AND substr(body, 1, 1) = x'40'"
    plan = store._db.execute(f"EXPLAIN QUERY PLAN {asked}", (b"@",)).fetchall()
    assert f"INDEX {table}_by_large_fields" in str(plan)
