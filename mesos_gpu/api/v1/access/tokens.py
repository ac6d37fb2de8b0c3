"""Routes of tokens: creating, listing and revoking them; a token's secret is shown once."""

import secrets
import time
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access import rights as r
from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.giving import has_everything, is_narrower
from mesos_gpu.access.rights import parse
from mesos_gpu.access.tokens import ID_BYTES, SALT_BYTES, SECRET_BYTES, digest_of, text_of
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer, valid
from mesos_gpu.api.http.requests import read_of, result_of
from mesos_gpu.api.http.rights import refusal, require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.engine.events import TokenCreated, TokenRevoked
from mesos_gpu.errors import NotFound
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.wire.access import token as wire
from mesos_gpu.wire.access.token import TokenRequest
from mesos_gpu.wire.checking import Problem, object_of

FRESH_S: Final = 900.0  # of a browser's session that may create tokens, which outlive it


class TokenHandlers:
    """HTTP handlers of the routes below /v1/tokens.

    Args:
        longest_s: Longest lifetime of a token, in seconds.
    """

    def __init__(self, scheduler: SchedulerApi, longest_s: float) -> None:
        self._scheduler, self._longest_s = scheduler, longest_s

    async def list(self, request: Request) -> Response:
        """GET /v1/tokens: the visible tokens, the newest first."""
        rights, name = rights_of(request), request.query_params.get("name")
        shown = [
            token
            for token in self._scheduler.tokens.values()
            if name in (None, token.name) and rights.may(r.TOKEN_SEE, Subject(token.name))
        ]
        shown.sort(key=lambda token: (-token.created_at, token.id))
        return json_answer({"tokens": [wire.encode(token) for token in shown]})

    async def create(self, request: Request) -> Response:
        """POST /v1/tokens: create a token; its secret is in this answer only."""
        request_body = valid(wire.decode(await read_of(request, object_of), self._longest_s))
        # Judged by the rights at the time when the whole body has arrived.
        new_token, until = _new_token(rights_of(request), request_body)
        salt, secret = secrets.token_hex(SALT_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        stored = replace(new_token, id=secrets.token_hex(ID_BYTES), salt=salt, digest=digest_of(salt, secret))
        token = await result_of(self._scheduler.request(TokenCreated(stored, request_body.lifetime_s, until)))
        note.about("token", token.id)
        note.about("name", token.name)
        headers = {"Location": f"/v1/tokens/{token.id}", "Cache-Control": "no-store"}
        warnings = [] if rights_of(request).is_open else _warnings(self._scheduler.access, token)
        body = {"secret": text_of(token.id, secret), "token": wire.encode(token), "warnings": warnings}
        return json_answer(body, 201, headers)

    async def show(self, request: Request) -> Response:
        """GET /v1/tokens/{id}: a token without its secret."""
        return json_answer(wire.encode(self._seen(request)))

    async def revoke(self, request: Request) -> Response:
        """DELETE /v1/tokens/{id}: revoke a token, and the tokens created with it, with immediate effect."""
        token = self._seen(request)
        note.about("token", token.id)
        note.about("name", token.name)
        require(rights_of(request), r.TOKEN_REVOKE, Subject(token.name))
        await result_of(self._scheduler.request(TokenRevoked(token.id)))
        return json_answer(wire.encode(token))

    def _seen(self, request: Request) -> Token:
        """Return the token that a path names, if the caller may see it."""
        id, rights = str(request.path_params["id"]), rights_of(request)
        token = self._scheduler.tokens.get(id)
        about = None if token is None else Subject(token.name)
        if token is None or not (rights.may(r.TOKEN_SEE, about) or rights.may(r.TOKEN_REVOKE, about)):
            raise NotFound(f"there is no token {id}", remedy="list them with: mesos-gpu token list")
        return token


def _warnings(document: AccessDocument, token: Token) -> list[str]:
    """Return warnings about possible mistakes. Root is not considered: it has its rights by the socket only."""
    if Rights(document, Caller(token.name, frozenset(token.groups), Proof.TOKEN)).held():
        return []
    what = f"{token.name} can do nothing with this token: no binding names {token.name} or its groups"
    return [f"{what}; bind a role to it (mesos-gpu access apply)"]


def _new_token(rights: Rights, asked: TokenRequest) -> tuple[Token, float | None]:
    """Return the requested token without id and secret, and its latest end; None for no such end.

    Raises:
        Refusal: The caller may not create it: it is for another name, or permits more than the caller's own
            credentials.
    """
    caller = rights.caller
    if caller.session and time.time() - caller.session_since > FRESH_S:
        what = f"this session began more than {FRESH_S / 60:.0f} minutes ago, and a token would outlive it"
        raise Refusal(403, "forbidden", what, remedy="log in again, then create it")
    name = asked.name or caller.name
    if not name:
        raise invalid(Problem("/name", "name the user of the token, as ann: the request itself has no user"))
    require(rights, r.TOKEN_CREATE, Subject(name))
    is_own = name == caller.name
    if not is_own and not has_everything(rights):
        what = f"a token of {name} permits all that {name} may do: only callers with all rights may create it"
        raise Refusal(403, "forbidden", what, remedy=rights.who_can_give())
    if is_own and asked.groups is not None and not caller.groups.issuperset(asked.groups):
        lacking = ", ".join(group for group in asked.groups if group not in caller.groups)
        raise Refusal(403, "forbidden", f"{name} is not in {lacking}", remedy="leave these groups out")
    narrowing = _narrowing(rights, asked, is_own=is_own)
    groups = asked.groups if asked.groups is not None else tuple(sorted(caller.groups)) if is_own else ()
    by_token = caller.token_id
    token = Token(
        id="",
        name=name,
        salt="",
        digest="",
        created_at=0.0,
        expires_at=0.0,
        groups=groups,
        narrowing=narrowing,
        comment=asked.comment,
        created_by=caller.name,
        made_with=by_token,
    )
    return token, caller.until if by_token else None


def _narrowing(rights: Rights, asked: TokenRequest, *, is_own: bool) -> Narrowing:
    """Return the restriction of a new token.

    Raises:
        Refusal: The token would permit more than the caller's credentials, or has a right that the caller has for
            nothing.
    """
    own = rights.caller.narrowing
    narrowing = asked.narrowing or own or Narrowing()
    if not is_narrower(own, narrowing):
        what = (
            f"the token would permit more than the credentials of this request ({rights.caller.proof.value})"
        )
        raise Refusal(
            403, "forbidden", what, remedy="restrict it as much, or log in with unrestricted credentials"
        )
    if is_own and not rights.is_open:
        for text in narrowing.rights:
            named_rights = parse(text).rights
            if not any(rights.may_some(right) for right in named_rights):
                raise refusal(rights, min(named_rights, key=lambda right: right.name))
    return narrowing
