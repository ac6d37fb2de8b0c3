"""Webhooks that the state gets while they are changed."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.model.saves import KeepHooks, Save, Saved
from mesos_gpu.model.tasks.hook import Hook, StoredHooks
from mesos_gpu.scheduler.happenings.handing_over import DeliveryProgress


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[HookStore]:
    store = HookStore(tmp_path / "hooks")
    yield store
    store.close()


def test_webhooks_read_before_a_change_are_not_saved_after_it(
    hooks: HookStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[int] = []

    def keep(*saves: Save) -> Future[None]:
        versions.extend(each.hooks.version.version for each in saves if isinstance(each, KeepHooks))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    over = DeliveryProgress(hooks, Saved(None, (), (), ()), "http://a:1")
    over.begin(keep)
    change = threading.Thread(target=lambda: hooks.put(Hook("h", "http://127.0.0.1:1/h"), b"x" * 32))
    kept = hooks.kept

    def kept_before_a_change(by: str) -> StoredHooks:
        read = kept(by)
        if threading.current_thread() is not change:
            change.start()
            change.join(0.2)  # a change that does not wait has ended by then
        return read

    monkeypatch.setattr(hooks, "kept", kept_before_a_change)
    over.tell(0)
    change.join()
    assert versions == [0, 1]
