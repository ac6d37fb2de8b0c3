"""The scheduler's state on disk: SQLite in WAL mode, one transaction for each batch of saves.

Nouns are kept as JSON bodies, beside the columns that are searched by. The schema's number is in
`PRAGMA user_version`; each step up is one file in `migrations/`.
"""

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mesos_gpu.errors import Conflict, Damaged
from mesos_gpu.model import saves
from mesos_gpu.model.drain import Card, Drain
from mesos_gpu.model.job import Job
from mesos_gpu.model.node import Node
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.service import AppVersion, Deployment, RootVersion, Services
from mesos_gpu.model.split import Split
from mesos_gpu.model.task import Task

T = TypeVar("T")


class SqliteStore:
    """`Store` in one file. One scheduler at a time: a second one is refused.

    Raises:
        Conflict: Another process has the store open.
        Damaged: The file is no store of this program, is corrupt, or is newer than the program.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`, and bring its schema up."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise Conflict(
                f"another scheduler uses the state in {path}",
                remedy="stop it first, or give this one another --state file",
            ) from error
        try:
            self._db = self._opened()
        except BaseException:
            os.close(self._lock)
            raise

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            with self._refusing_damage():
                db.execute("PRAGMA journal_mode=WAL")
                # Every commit reaches the disk: what Mesos was told must survive a power cut.
                db.execute("PRAGMA synchronous=FULL")
                if db.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("quick_check found errors")
                self._migrate(db)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise Damaged(
                f"the scheduler's state in {self._path} cannot be read: {error}",
                remedy="restore it from a backup; or, only if none of its tasks runs any more, move it away",
            ) from error

    def _migrate(self, db: sqlite3.Connection) -> None:
        steps = sorted(
            (int(entry.name.split("_")[0]), entry.read_text())
            for entry in files("mesos_gpu.adapters").joinpath("migrations").iterdir()
            if entry.name.endswith(".sql")
        )
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > steps[-1][0]:
            raise Damaged(
                f"{self._path} has schema {version}, and this program knows {steps[-1][0]} at most",
                remedy="run the newer mesos_gpu that wrote it",
            )
        for number, script in steps:
            if number > version:
                db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")

    def load(self) -> Saved:
        """Everything."""
        with self._refusing_damage():
            row = self._db.execute("SELECT value FROM facts WHERE name = 'framework_id'").fetchone()
            return Saved(
                framework_id=row[0] if row else None,
                jobs=tuple(self._bodies("SELECT body FROM jobs ORDER BY sequence, id", Job)),
                tasks=tuple(self._bodies("SELECT body FROM tasks ORDER BY launched_at, id", Task)),
                nodes=tuple(self._bodies("SELECT body FROM nodes ORDER BY id", Node)),
                drains=tuple(self._bodies("SELECT body FROM drains ORDER BY target, name", Drain)),
                cards=tuple(self._bodies("SELECT body FROM cards ORDER BY id", Card)),
                services=next(
                    self._bodies("SELECT value FROM facts WHERE name = 'services'", Services), Services()
                ),
                app_versions=tuple(
                    self._bodies("SELECT body FROM app_versions ORDER BY app_id, version", AppVersion)
                ),
                deployments=tuple(
                    self._bodies("SELECT body FROM deployments ORDER BY version, id", Deployment)
                ),
                splits=tuple(self._bodies("SELECT body FROM splits ORDER BY name", Split)),
                roots=tuple(self._bodies("SELECT body FROM root_versions ORDER BY version", RootVersion)),
            )

    def key(self) -> bytes:
        """What secrets of launches are made of: 32 bytes, made at the first call and the same ever after."""
        with self._refusing_damage():
            new = (secrets.token_bytes(32),)
            self._db.execute("INSERT OR IGNORE INTO facts VALUES ('key', ?)", new)
            return bytes(self._db.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()[0])

    def _bodies(self, query: str, kind: type[T]) -> Iterator[T]:
        decoder = msgspec.json.Decoder(kind)
        for (body,) in self._db.execute(query):
            yield decoder.decode(body)

    def save(self, batch: Iterable[Save]) -> None:
        """Write a batch in one transaction: all of it or nothing is there after a crash."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for item in batch:
                self._write(item)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _write(self, item: Save) -> None:
        statement, values = _statement(item)
        self._db.execute(statement, values)
        if isinstance(item, saves.ForgetJob):
            self._db.execute("DELETE FROM tasks WHERE job_id = ?", (item.job_id,))

    def close(self) -> None:
        """Close the file and let another scheduler in."""
        self._db.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _statement(item: Save) -> tuple[str, tuple[Any, ...]]:
    match item:
        case saves.SaveFramework(framework_id):
            return "INSERT OR REPLACE INTO facts VALUES ('framework_id', ?)", (framework_id,)
        case saves.SaveJob(job):
            return "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", (job.id, job.sequence, _body(job))
        case saves.SaveTask(task):
            values = (task.id, task.job_id, task.launched_at, _body(task))
            return "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)", values
        case saves.SaveNode(node):
            return "INSERT OR REPLACE INTO nodes VALUES (?, ?)", (node.id, _body(node))
        case saves.SaveDrain(drain):
            key = (drain.target.value, drain.name)
            return "INSERT OR REPLACE INTO drains VALUES (?, ?, ?)", (*key, _body(drain))
        case saves.SaveCard(card):
            return "INSERT OR REPLACE INTO cards VALUES (?, ?)", (card.id, _body(card))
        case saves.ForgetDrain(target, name):
            return "DELETE FROM drains WHERE target = ? AND name = ?", (target.value, name)
        case saves.ForgetJob(job_id):
            return "DELETE FROM jobs WHERE id = ?", (job_id,)
        case saves.ForgetTask(task_id):
            return "DELETE FROM tasks WHERE id = ?", (task_id,)
        case saves.ForgetNode(agent_id):
            return "DELETE FROM nodes WHERE id = ?", (agent_id,)
        case _:
            return _statement_of_apps(item)


def _statement_of_apps(item: saves.SaveOfApps) -> tuple[str, tuple[Any, ...]]:
    match item:
        case saves.SaveServices(services):
            return "INSERT OR REPLACE INTO facts VALUES ('services', ?)", (_body(services),)
        case saves.SaveAppVersion(found):
            key = (found.app.id, found.version)
            return "INSERT OR REPLACE INTO app_versions VALUES (?, ?, ?)", (*key, _body(found))
        case saves.SaveRootVersion(root):
            return "INSERT OR REPLACE INTO root_versions VALUES (?, ?)", (root.version, _body(root))
        case saves.ForgetRootVersion(version):
            return "DELETE FROM root_versions WHERE version = ?", (version,)
        case saves.ForgetAppVersion(app_id, version):
            return "DELETE FROM app_versions WHERE app_id = ? AND version = ?", (app_id, version)
        case saves.SaveDeployment(deployment):
            values = (deployment.id, deployment.version, _body(deployment))
            return "INSERT OR REPLACE INTO deployments VALUES (?, ?, ?)", values
        case saves.ForgetDeployment(id):
            return "DELETE FROM deployments WHERE id = ?", (id,)
        case saves.SaveSplit(split):
            return "INSERT OR REPLACE INTO splits VALUES (?, ?)", (split.name, _body(split))
        case saves.ForgetSplit(name):
            return "DELETE FROM splits WHERE name = ?", (name,)


def _body(value: Any) -> bytes:
    return msgspec.json.encode(value)
