"""A state that was brought back from a backup: tokens that were revoked since prove nothing again, and webhooks that
were removed since are told nothing."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.tokens import ended_with
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.model.access.record import Result
from mesos_gpu.model.saves import ForgetToken, Saved
from mesos_gpu.ports import AuditTrail, Store

_REVOKED: Final = "DELETE /v1/tokens/{id}"
_REMOVED: Final = "DELETE /v1/webhooks/{name}"
_TOKEN, _HOOK = "token:", "webhook:"
_AT_ONCE: Final = 1000
logger = logging.getLogger(__name__)


def without_revoked(saved: Saved, store: Store, trail: AuditTrail) -> Saved:
    """What was saved, if it may be older than what runs, without the tokens whose end is in the audit log; they are
    deleted from the store too."""
    if not (saved.doubtful and saved.tokens):
        return saved
    kept = {token.id: token for token in saved.tokens}
    ended = ended_with(kept, [id for id, _ in _done(trail, _REVOKED, _TOKEN) if id in kept])
    store.save([ForgetToken(id) for id in ended])
    left = [token for token in saved.tokens if token.id not in ended]
    logger.warning(
        "the state may be older than what was done since: of its %d tokens the audit log says that %d were revoked, "
        "and they are; look at the others (mesos-gpu token list), and at who may do what (mesos-gpu access versions)",
        len(kept),
        len(ended),
    )
    return replace(saved, tokens=tuple(left))


def without_removed(hooks: HookStore, trail: AuditTrail) -> None:
    """Remove webhooks of a state that may be older than what runs, if the audit log says that they were removed after
    they were made or changed last."""
    removed = dict[str, float]()
    for name, at in _done(trail, _REMOVED, _HOOK):
        removed[name] = max(at, removed.get(name, 0.0))
    for hook in hooks.latest.hooks:
        if removed.get(hook.name, 0.0) > hook.at:
            hooks.remove(hook.name, "")
            logger.warning(
                "webhook %s was removed since the state was copied, and is removed again", hook.name
            )


def _done(trail: AuditTrail, what: str, kind: str) -> Iterator[tuple[str, float]]:
    """What that was done to, and when."""
    cursor = ""
    while True:
        page = trail.search(Asked(what=what, result=Result.DONE), limit=_AT_ONCE, cursor=cursor)
        for _, record in page.records:
            yield from ((each.removeprefix(kind), record.at) for each in record.on if each.startswith(kind))
        cursor = page.cursor
        if not cursor:
            return
