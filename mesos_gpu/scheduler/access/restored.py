"""Cleanup after a restored backup: tokens revoked and webhooks removed since the backup are removed again."""

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
    """Return a possibly outdated state without the tokens that the audit log shows as revoked.

    The tokens are deleted from the store too. A state that is not doubtful is returned unchanged.
    """
    if not (saved.doubtful and saved.tokens):
        return saved
    tokens = {token.id: token for token in saved.tokens}
    ended = ended_with(tokens, [id for id, _ in _done(trail, _REVOKED, _TOKEN) if id in tokens])
    store.save([ForgetToken(id) for id in ended])
    remaining = [token for token in saved.tokens if token.id not in ended]
    logger.warning(
        "the state may be an old copy: of its %d tokens, %d were revoked later according to the audit log and are "
        "revoked again; check the others (mesos-gpu token list) and the access rules (mesos-gpu access versions)",
        len(tokens),
        len(ended),
    )
    return replace(saved, tokens=tuple(remaining))


def without_removed(hooks: HookStore, trail: AuditTrail) -> None:
    """Remove webhooks from a possibly outdated state that were removed after their last change by the audit log."""
    removed = dict[str, float]()
    for name, at in _done(trail, _REMOVED, _HOOK):
        removed[name] = max(at, removed.get(name, 0.0))
    for hook in hooks.latest.hooks:
        if removed.get(hook.name, 0.0) > hook.at:
            hooks.remove(hook.name, "")
            logger.warning(
                "webhook %s was removed after this state was copied, so it is removed again", hook.name
            )


def _done(trail: AuditTrail, what: str, kind: str) -> Iterator[tuple[str, float]]:
    """Yield the name and time of each successful audited action `what` on an object whose reference begins with
    `kind`."""
    cursor = ""
    while True:
        page = trail.search(Asked(what=what, result=Result.DONE), limit=_AT_ONCE, cursor=cursor)
        for _, record in page.records:
            yield from (
                (reference.removeprefix(kind), record.at)
                for reference in record.on
                if reference.startswith(kind)
            )
        cursor = page.cursor
        if not cursor:
            return
