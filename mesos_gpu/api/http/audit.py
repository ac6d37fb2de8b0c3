"""Audit log: a record of each requested change and of each refusal, with caller, proof, address, action and result.

The record of a change is on the disk before its answer is sent; the scheduler's log gets a line, too. Nothing of a body
is recorded but the names that it claims, and nothing of a query but the fields in `_SHOWN`.
"""

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.access.tokens import redacted
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.http.guard import RELAYED
from mesos_gpu.api.http.note import REQUEST_ID, Note
from mesos_gpu.model.access.caller import NOBODY, Caller, Proof
from mesos_gpu.model.access.record import AuditRecord, Result, cut
from mesos_gpu.ports import AuditTrail
from mesos_gpu.wire.plain import clean

MAX_READ: Final = 1 << 16  # bytes of a body that are searched for names
MAX_CLAIM: Final = 64
#: Path prefixes whose POST requests change nothing.
READS: Final = ("/v1/plan/", "/v1/access/check", "/v1/templates/")
_BEGINS: Final = (
    "/login/oidc/callback",
)  # a GET to which an issuer redirects a browser; it begins a session
_REFUSALS: Final = (401, 403, 413, 415, 421, 429, 431)  # recorded also for requests that change nothing
_SHOWN: Final = (
    "by",
    "dry_run",
    "force",
    "reclaim_after_s",
    "restart",
    "scale",
    "wipe",
    "timeout_s",
)  # fields of a query that are recorded
_NO_ROOM: Final = 507
logger = logging.getLogger("mesos_gpu.audit")


class _Claims(msgspec.Struct):
    by: Any = None
    user: Any = None
    id: Any = None


@dataclass(slots=True)
class _Seen:
    """Body and answer of a request so far; `status` is 500 as long as nothing was answered."""

    body: bytearray
    status: int = 500
    made: str = ""


class Audit:
    """ASGI middleware that records requests; it encloses all middleware that may refuse one.

    Args:
        app: The next ASGI application.
        trail: Storage of audit records; None for lines in the log only.
    """

    def __init__(self, app: ASGIApp, trail: AuditTrail | None = None) -> None:
        self._app, self._trail = app, trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record it, if it changes something or is refused."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        about = note.begin(note.id_for(Headers(scope=scope).get(REQUEST_ID, "")))
        changes = scope["path"] in _BEGINS or (
            scope["method"] not in SAFE and not scope["path"].startswith(READS)
        )
        seen, noted = _Seen(bytearray()), False

        async def read() -> Message:
            message = await receive()
            if changes and len(seen.body) < MAX_READ:
                seen.body.extend(message.get("body", b""))
            return message

        async def answer(message: Message) -> None:
            nonlocal noted
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers[REQUEST_ID] = about.request
                message["headers"] = headers.raw
                seen.status = message["status"]
                seen.made = headers.get("location") or headers.get("marathon-deployment-id") or ""
                noted = True
                if (changes and not about.is_piece) or seen.status in _REFUSALS:
                    await self._keep(scope, about, seen)
            await send(message)

        try:
            await self._served(changes)(scope, read, answer)
        finally:
            if changes and not noted:  # unexpected error, answered outside of this middleware
                await self._keep(scope, about, seen)

    def _served(self, changes: bool) -> ASGIApp:
        """Return the application, or one that refuses: a change is not carried out if it cannot be recorded."""
        full = self._trail.full() if self._trail is not None and changes else None
        if full is None:
            return self._app
        refusal = Refusal(_NO_ROOM, "no-room", full.what, remedy=full.remedy)

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            await error_answer(refusal, scope["path"])(scope, receive, send)

        return refuse

    async def _keep(self, scope: Scope, about: Note, seen: _Seen) -> None:
        """Log a request and store its record; return when the record is on the disk."""
        claims = _claims(bytes(seen.body))
        saved = self._trail.put(_record(scope, about, seen, claims)) if self._trail is not None else None
        if saved is None and self._trail is not None:
            return  # suppressed as one of a flood, and counted
        _log(scope, about, seen, claims)
        if saved is not None:
            await asyncio.wrap_future(saved)


def _record(scope: Scope, about: Note, seen: _Seen, claims: _Claims) -> AuditRecord:
    """Return the audit record of a request."""
    caller, client = _caller(scope), scope.get("client")
    path, named = note.of_path(scope["path"])
    return AuditRecord(
        at=time.time(),
        what=f"{scope['method']} {about.route or path}",
        result=_result(seen.status),
        who=clean(caller.name or about.claimed or caller.shown),
        proof=_proof(caller, about),
        proved=caller.is_proved,
        address=f"{client[0]}:{client[1]}" if client and client[0] else "unix",
        relayed=note.shown(_relayed(scope, caller)),
        right=about.right,
        on=tuple(about.on) or ((named,) if named else ()),
        status=seen.status,
        reason=about.reason,
        request=about.request,
        detail=_detail(scope, claims),
    )


def _result(status: int) -> Result:
    if status < 400:
        return Result.DONE
    return Result.REFUSED if status < 500 or status == _NO_ROOM else Result.FAILED


def _caller(scope: Scope) -> Caller:
    rights = scope.get("state", {}).get("rights")
    return NOBODY if rights is None else rights().caller


def _proof(caller: Caller, about: Note) -> str:
    """Return the kind of a proof, right or wrong, and the token's id if it is one; never the proof itself."""
    if not caller.is_proved:
        return about.claimed_by or caller.proof.value
    return f"{caller.proof.value}:{caller.proof_id}" if caller.proof is Proof.TOKEN else caller.proof.value


def _relayed(scope: Scope, caller: Caller) -> str:
    """Return the origin of a request according to a trusted proxy, else the forwarding headers of any proxy."""
    client, headers = scope.get("client"), Headers(scope=scope)
    if caller.address and client and caller.address != client[0]:
        return f"from {caller.address}"
    return ", ".join(f"{name}: {headers[name]}" for name in RELAYED if name in headers)


def _detail(scope: Scope, claims: _Claims) -> str:
    """Return the fields of a request that are known to contain no secrets, as `name=value` words."""
    query = QueryParams(scope["query_string"])
    words = {name: query[name] for name in _SHOWN if name in query}
    words |= {
        name: claim for name, claim in (("by", claims.by), ("user", claims.user)) if isinstance(claim, str)
    }
    return " ".join(
        f"{name}={_word(cut(note.shown(value), MAX_CLAIM))}" for name, value in words.items() if value
    )


def _log(scope: Scope, about: Note, seen: _Seen, claims: _Claims) -> None:
    """Write the log line of a request, with secrets redacted."""
    caller, client = _caller(scope), scope.get("client") or ("unknown", 0)
    query = QueryParams(scope["query_string"])
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "query": str(QueryParams([(name, value) for name, value in query.multi_items() if name in _SHOWN])),
        "from": f"{client[0]}:{client[1]}",
        "relayed": _relayed(scope, caller),
        "who": caller.name or (f"{about.claimed} (unproved)" if about.claimed else ""),
        "proof": _proof(caller, about) if caller.is_proved or about.claimed_by else "",
        "by": str(claims.by or query.get("by") or ""),
        "user": str(claims.user or ""),
        "about": str(claims.id or ""),
        "status": seen.status,
        "made": seen.made,
    }
    fields = {name: redacted(value) if isinstance(value, str) else value for name, value in fields.items()}
    words = " ".join(
        f"{name}={_word(str(value))}"
        for name, value in fields.items()
        if value and name not in ("method", "path")
    )
    logger.info("%s %s %s", fields["method"], _word(redacted(scope["path"])), words, extra={"fields": fields})


def _word(text: str) -> str:
    """Write a value as it is, or as a JSON string if it could be mistaken for several fields or for other text."""
    return text if text.isprintable() and not set(' "=\\') & set(text) else json.dumps(text)


def _claims(body: bytes) -> _Claims:
    """Return the names that a body claims; empty if they cannot be read."""
    try:
        return msgspec.json.decode(body, type=_Claims)
    except (ValueError, RecursionError):
        return _Claims()  # no object, cut, or empty: no claims can be read
