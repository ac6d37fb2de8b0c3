"""A state that was brought back from a backup: what was revoked since stays so."""

import time
from dataclasses import replace
from pathlib import Path

from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.model.access.record import AuditRecord, Result
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.saves import SaveToken
from mesos_gpu.model.tasks.hook import Hook
from mesos_gpu.scheduler.access.restored import without_removed, without_revoked


def test_tokens_that_the_audit_log_knows_as_revoked_are_not_there_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "scheduler.sqlite")
    trail = AuditLog(AuditSettings(tmp_path / "audit", 8 << 20, 2, OnFull.REFUSE))
    try:
        for id, made_with in (
            ("gone", ""),
            ("child", "gone"),
            ("grandchild", "child"),
            ("tried", ""),
            ("left", ""),
        ):
            token = Token(id, "ann", "5a17", "d1" * 32, 0.0, time.time() + 3600.0, made_with=made_with)
            store.save([SaveToken(token)])
        for id, result in (("gone", Result.DONE), ("tried", Result.REFUSED), ("unknown", Result.DONE)):
            on = (f"token:{id}", "name:ann")
            kept = trail.put(AuditRecord(time.time(), "DELETE /v1/tokens/{id}", result, "ann", on=on))
            assert kept is not None
            kept.result(60)
        saved = store.load()
        assert without_revoked(saved, store, trail) == saved, "nothing is older than it was"
        left = without_revoked(replace(saved, doubtful=True), store, trail)
        assert (
            {token.id for token in left.tokens}
            == {"tried", "left"}
            == {each.id for each in store.load().tokens}
        )
    finally:
        trail.close()
        store.close()


def test_webhooks_that_the_audit_log_knows_as_removed_are_not_there_again(tmp_path: Path) -> None:
    hooks = HookStore(tmp_path / "hooks")
    trail = AuditLog(AuditSettings(tmp_path / "audit", 8 << 20, 2, OnFull.REFUSE))
    try:
        now = time.time()
        for name, at in (("gone", now - 9), ("again", now + 9), ("tried", now - 9), ("left", now - 9)):
            hooks.put(Hook(name, "https://hooks.example.com/", at=at), b"key")
        for name, result in (("gone", Result.DONE), ("again", Result.DONE), ("tried", Result.REFUSED)):
            record = AuditRecord(now, "DELETE /v1/webhooks/{name}", result, "ann", on=(f"webhook:{name}",))
            kept = trail.put(record)
            assert kept is not None
            kept.result(60)
        without_removed(hooks, trail)
        assert [hook.name for hook in hooks.latest.hooks] == ["again", "left", "tried"]
        assert hooks.secret("gone") is None
    finally:
        trail.close()
        hooks.close()
