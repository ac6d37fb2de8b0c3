"""Tokens of a state that was brought back from a backup: those that were revoked since prove nothing again."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.tokens import ended_with
from mesos_gpu.model.access.record import Result
from mesos_gpu.model.saves import ForgetToken, Saved
from mesos_gpu.ports import AuditTrail, Store

_REVOKED: Final = "DELETE /v1/tokens/{id}"
_KIND: Final = "token:"
_AT_ONCE: Final = 1000
logger = logging.getLogger(__name__)


def without_revoked(saved: Saved, store: Store, trail: AuditTrail) -> Saved:
    """What was saved, if it may be older than what runs, without the tokens whose end is in the audit log; they are
    deleted from the store too."""
    if not (saved.doubtful and saved.tokens):
        return saved
    kept = {token.id: token for token in saved.tokens}
    ended = ended_with(kept, [id for id in _revoked(trail) if id in kept])
    store.save([ForgetToken(id) for id in ended])
    left = [token for token in saved.tokens if token.id not in ended]
    logger.warning(
        "the state may be older than what was done since: of its %d tokens the audit log says that %d were revoked, "
        "and they are; look at the others (mesos-gpu token list), and at who may do what (mesos-gpu access versions)",
        len(kept),
        len(ended),
    )
    return replace(saved, tokens=tuple(left))


def _revoked(trail: AuditTrail) -> Iterator[str]:
    cursor = ""
    while True:
        page = trail.search(Asked(what=_REVOKED, result=Result.DONE), limit=_AT_ONCE, cursor=cursor)
        for _, record in page.records:
            yield from (each.removeprefix(_KIND) for each in record.on if each.startswith(_KIND))
        cursor = page.cursor
        if not cursor:
            return
