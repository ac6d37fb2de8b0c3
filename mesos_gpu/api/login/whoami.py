"""The caller's identity, and its rights in words."""

from collections.abc import Iterable, Sequence
from typing import Any

from mesos_gpu.access.decide import Grant, Rights, unix_user_of
from mesos_gpu.access.rights import Right, Scope


def told(rights: Rights, proofs: Iterable[str], csrf_token: str | None) -> dict[str, Any]:
    """Return the answer of GET /v1/whoami. `proofs`: accepted kinds; `csrf_token`: None without a browser's session."""
    caller = rights.caller
    narrowing = caller.narrowing
    return {
        "name": caller.name or None,
        "groups": sorted(caller.groups),
        "proof": caller.proof.value,
        "proof_id": caller.proof_id or None,
        "address": caller.address or None,
        "session": caller.session,
        "until": caller.until,
        "local_admin": caller.local_admin,
        "unix_user": unix_user_of(rights.document, caller.name) if caller.is_proved else None,
        "roles": list(rights.roles),
        "rights": [_right(right, grant) for right, grant in rights.held()],
        "narrowing": None
        if narrowing is None
        else {"rights": [*narrowing.rights], "queues": [*narrowing.queues], "apps": [*narrowing.apps]},
        "proofs": list(proofs),
        "csrf_token": csrf_token,
    }


def _right(right: Right, grant: Grant) -> dict[str, Any]:
    return {
        "name": right.name,
        "own": grant.own,
        "pattern": grant.pattern or None,
        "queues": [*grant.queues],
        "apps": [*grant.apps],
        "words": in_words(right, grant),
    }


def in_words(right: Right, grant: Grant) -> str:
    """Return a right in words, as `end jobs (one's own), in the queue research`."""
    words = right.allows
    if grant.own:
        words += " (one's own)"
    if grant.pattern:
        words += f" ({grant.pattern})"
    if right.scope in (Scope.JOB, Scope.NAME) and "*" not in grant.queues:
        words += f", in {_listed('queue', grant.queues)}"
    if right.scope is Scope.APP and not {"*", "/*"} & set(grant.apps):
        words += f", in {_listed('app', grant.apps)}"
    return words


def _listed(kind: str, names: Sequence[str]) -> str:
    return f"the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"
