"""A scheduler that stands by has the archives that jobs need, and nobody else gets them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.standby.passing import Leader
from mesos_gpu.api.v1.files.uploads import OF_STANDBY, PASS
from mesos_gpu.scheduler.ha.archives import Archives
from mesos_gpu.wire.mesos.seal import pass_for, secret_for
from tests.contract.rig import Rig

KEY = b"k" * 32
OWNER = "zoë@example.com/a b"
DATA = os.urandom(700_000)
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    store = UploadStore(tmp_path / "leader")
    assert store.put(OWNER, DIGEST, 0, len(DATA), DATA).complete
    rig = Rig(uploads=store, task_key=lambda: KEY)
    yield rig
    rig.close()


def fetched(rig: Rig, store: UploadStore, key: bytes = KEY) -> None:
    """Let a standby look once."""
    archives = Archives(store, lambda: [(OWNER, DIGEST)], lambda: None, lambda: key)
    try:
        archives.look(Leader(rig.url, "run"))
    finally:
        archives.stop()


def test_standby_fetches_archives_from_the_leader_also_after_a_part(rig: Rig, tmp_path: Path) -> None:
    for name, begun in (("none", 0), ("part", 300_001)):
        store = UploadStore(tmp_path / name)
        if begun:
            store.put(OWNER, DIGEST, 0, len(DATA), DATA[:begun])
        fetched(rig, store)
        kept = store.find(OWNER, DIGEST)
        assert kept is not None
        assert kept.complete
        with os.fdopen(store.open(OWNER, DIGEST), "rb") as file:
            assert file.read() == DATA


def test_archives_are_refused_without_the_key(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = UploadStore(tmp_path / "stranger")
    fetched(rig, store, b"x" * 32)
    assert store.find(OWNER, DIGEST) is None
    assert "it answers 404" in caplog.text
    path = f"/v1/uploads/{DIGEST}/archive"
    good = pass_for(secret_for(KEY, OF_STANDBY), f"GET {path} ann")
    assert rig.call("GET", f"{path}?owner={OWNER}", headers={PASS: good}).status_code == 404, (
        "it is for ann's"
    )
    of_task = pass_for(secret_for(KEY, "t.1"), f"GET {path} {OWNER}")
    assert rig.call("GET", f"{path}?owner={OWNER}", headers={PASS: of_task}).status_code == 404
    assert rig.call("GET", f"{path}?owner={OWNER}").status_code == 404
