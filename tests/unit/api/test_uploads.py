"""Requests about archives that are cancelled while a thread works for them."""

import asyncio
import hashlib
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from mesos_gpu.access.decide import Rights
from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.http import rights
from mesos_gpu.api.v1.files.uploads import Uploads
from mesos_gpu.errors import Conflict
from mesos_gpu.model.access.caller import ANYBODY
from mesos_gpu.model.access.document import AccessDocument
from tests.conftest import wait_until

DATA = b"an archive"
DIGEST = hashlib.sha256(DATA).hexdigest()


class Idle:
    """A scheduler without jobs."""

    def read(self, _fn: object) -> "Future[Any]":
        future = Future[Any]()
        future.set_result({})
        return future


def is_claimed(store: UploadStore) -> bool:
    try:
        with store.going("", DIGEST):
            return False
    except Conflict:
        return True


def test_upload_removal_that_is_cancelled_keeps_its_claim_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UploadStore(tmp_path / "uploads")
    store.put("", DIGEST, 0, len(DATA), DATA)
    begun, go_on, unlink = threading.Event(), threading.Event(), Path.unlink

    def slow(path: Path, missing_ok: bool = False) -> None:
        begun.set()
        assert go_on.wait(60)
        unlink(path, missing_ok)

    scope = {"type": "http", "method": "DELETE", "headers": [], "path_params": {"sha256": DIGEST}}
    rights.put(scope, lambda: Rights(AccessDocument(), ANYBODY))

    async def cancelled() -> None:
        removal = asyncio.ensure_future(Uploads(Idle(), store, bytes).remove(Request(scope)))  # type: ignore[arg-type]
        assert await asyncio.to_thread(begun.wait, 60)
        removal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removal

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", slow)
        try:
            asyncio.run(cancelled())
            assert is_claimed(store), "the thread still unlinks it"
        finally:
            go_on.set()
    wait_until("the claim ends with the thread", lambda: not is_claimed(store), 60)
    assert store.find("", DIGEST) is None
