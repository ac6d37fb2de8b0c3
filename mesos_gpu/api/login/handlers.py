"""Routes for logging in and out, and for the caller's own identity."""

from base64 import b64encode
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mesos_gpu.access.proofs import Authorization
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer
from mesos_gpu.api.http.requests import MAX_CREDENTIALS, body_of, read_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.login import whoami
from mesos_gpu.api.login.page import login_page
from mesos_gpu.api.login.who import Who
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.wire.checking import Problem, object_of

_FIELDS: Final = ("name", "password", "token")
_MAX_FIELDS: Final = 8
_HTML: Final = "text/html"


class LoginHandlers:
    """HTTP handlers of sessions, of the log-in page, and of the caller's identity.

    Args:
        who: Identification of callers; None if authentication is off.
    """

    def __init__(self, who: Who | None) -> None:
        self._who = who

    async def show(self, request: Request) -> Response:
        """GET /v1/whoami: the caller's identity and rights."""
        return json_answer(self._identity(request, rights_of(request).caller))

    async def begin(self, request: Request) -> Response:
        """POST /v1/session: begin a session; the body has a name and a password, or a token."""
        credentials = _credentials(await read_of(request, object_of, MAX_CREDENTIALS))
        caller, headers = await self._log_in(request, credentials)
        return json_answer(
            {"name": caller.name, "until": caller.until}, 201, {**headers, "Location": "/v1/whoami"}
        )

    async def end(self, request: Request) -> Response:
        """DELETE /v1/session: end the session of the request's cookie."""
        headers = self._who.log_out(request.scope) if self._who else {}
        return json_answer({"name": rights_of(request).caller.name or None, "until": None}, 200, headers)

    async def page(self, _request: Request) -> Response:
        """GET /login: the log-in page, which works without scripts."""
        return self._page()

    async def form(self, request: Request) -> Response:
        """POST /login: the form of the log-in page."""
        if not {"origin", "sec-fetch-site"} & set(request.headers):
            what = "a log-in form must come from a browser, which sends Origin or Sec-Fetch-Site"
            raise Refusal(403, "forbidden", what, remedy="programs use POST /v1/session, or send a token")
        text = (await body_of(request, MAX_CREDENTIALS)).decode("utf-8", "replace")
        try:
            fields = dict(parse_qsl(text, max_num_fields=_MAX_FIELDS))
        except ValueError:
            return self._page("the form has too many fields", 400)
        try:
            _caller, headers = await self._log_in(request, _credentials(fields))
        except Refusal as refusal:
            problem = f"{refusal.what}: {refusal.remedy}" if refusal.http_status == 429 else refusal.what
            return self._page(problem, refusal.http_status, refusal.headers)
        return RedirectResponse("/", 303, headers)

    async def _log_in(self, request: Request, shown: Authorization) -> tuple[Caller, dict[str, str]]:
        """Begin a session by credentials; return the caller and the header that sets the cookie."""
        if self._who is None:
            what = "this scheduler has no authentication"
            raise Refusal(409, "conflict", what, remedy="use it without logging in")
        return await self._who.log_in(request.scope, shown)

    def _page(self, problem: str = "", status: int = 200, headers: Any = None) -> Response:
        """Return the log-in page, with a message if a log-in has failed."""
        kinds = self._who.provers.keys() if self._who else ()
        text = login_page(
            problem,
            asked=self._who is not None,
            passwords=Proof.PASSWORD in kinds,
            issuer=Proof.OIDC in kinds,
        )
        # A form without a referrer would have no origin either (Fetch standard, "append a request Origin header").
        more = {"Referrer-Policy": "same-origin", "Cache-Control": "no-store", **(headers or {})}
        return Response(text, status, more, _HTML)

    def _identity(self, request: Request, caller: Caller) -> dict[str, Any]:
        """Return the answer of GET /v1/whoami."""
        kinds = [kind.value for kind in self._who.provers] if self._who else []
        csrf = self._who.csrf_of(caller) if self._who and caller.session else None
        return whoami.told(rights_of(request), kinds, csrf)


def _credentials(given: dict[str, Any]) -> Authorization:
    """Return credentials from a body as if they were in an Authorization header.

    Raises:
        Refusal: They are neither a token, nor a name and a password.
    """
    problems = [Problem(f"/{key}", "is not a known field") for key in given if key not in _FIELDS]
    problems += [
        Problem(f"/{key}", "must be a string")
        for key in _FIELDS
        if given.get(key) is not None and not isinstance(given[key], str)
    ]
    name, password, token = (given.get(key) or "" for key in _FIELDS)
    if not problems and bool(token) == bool(name or password):
        problems.append(Problem("", "must have a token, or a name and a password"))
    if problems:
        raise invalid(*problems)
    if token:
        return Authorization("bearer", token.strip())
    return Authorization("basic", b64encode(f"{name}:{password}".encode()).decode())
