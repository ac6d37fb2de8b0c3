"""Log-in with a browser at an OpenID Connect issuer: authorization code, PKCE (RFC 7636), state and nonce.

Nothing is stored of a log-in in progress but one random value in a cookie of the browser. State, nonce and verifier
derive from it, so that an answer of the issuer is valid once, and only in the browser that began the log-in.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from math import ceil
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.adapters.oidc.discovery import Endpoints
from mesos_gpu.adapters.oidc.fetching import IssuerError
from mesos_gpu.adapters.oidc.grants import Granted, Refused, of_code
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.api.login import cookies
from mesos_gpu.api.login.who import Who
from mesos_gpu.model.access.caller import Caller, Proof

logger = logging.getLogger("mesos_gpu.login")
PATH: Final = "/login/oidc"
CALLBACK: Final = "/login/oidc/callback"
BROWSER_S: Final = 3600.0  # shortest session: issuers' tokens for browsers expire after minutes
_BEGUN_S: Final = 600
_MAX_AT_ONCE: Final = 8
_MAX_LENGTH: Final = 4096  # characters of a code
_MAX_ERROR: Final = 64  # characters of an issuer's error code
_STATE, _NONCE, _VERIFIER = "state", "nonce", "verifier"
#: The redirect must come from a page of this server: a SameSite=Strict cookie is not sent after one from another site.
_WELCOME: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=../../">'
    '<title>mesos_gpu: logged in</title></head><body><p><a href="../../">Go on</a></p></body></html>'
)


_PROBLEM: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mesos_gpu: not logged in</title></head><body>'
    '<p role="alert">{}</p><p><a href="{}">Log in</a></p></body></html>'
)


class OidcLogin:
    """HTTP handlers of log-ins at an OpenID Connect issuer.

    Args:
        who: Identification of callers, which begins the sessions.
        prover: Verification of the issuer's tokens.
    """

    def __init__(self, who: Who, prover: OidcTokens) -> None:
        self._who, self._prover = who, prover.of_browsers()
        self._exchanges = asyncio.Semaphore(_MAX_AT_ONCE)

    async def begin(self, request: Request) -> Response:
        """GET /login/oidc: redirect the browser to the issuer."""
        shown = self._who.shown(request.scope)
        try:
            endpoints = await self._endpoints()
        except WrongProof as wrong:
            return _page(wrong.what, 503, "../login")
        secret = secrets.token_urlsafe(32)
        client = self._prover.client
        query = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": self._callback(request, shown),
            "scope": " ".join(client.scopes),
            "state": _derived(secret, _STATE),
            "nonce": _derived(secret, _NONCE),
            "code_challenge": _challenge(_derived(secret, _VERIFIER)),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in endpoints.authorization else "?"
        headers = cookies.begun(request.scope, shown, self._who.proxies, secret, _BEGUN_S)
        return RedirectResponse(
            f"{endpoints.authorization}{joint}{urlencode(query)}",
            303,
            {**headers, "Cache-Control": "no-store"},
        )

    async def end(self, request: Request) -> Response:
        """GET /login/oidc/callback: the issuer's answer with a code or an error."""
        shown = self._who.shown(request.scope)
        try:
            caller = await self._caller(request, shown)
        except WrongProof as wrong:
            refusal = self._who.refused(request.scope, wrong, Proof.OIDC.value, shown)
            return _page(
                f"{refusal.what}: {refusal.remedy}", refusal.http_status, "../../login", refusal.headers
            )
        _caller, headers = self._who.begin(request.scope, shown, caller)
        return Response(_WELCOME, 200, {**headers, **_PAGE}, "text/html")

    async def _caller(self, request: Request, shown: Shown) -> Caller:
        """Return the caller that the issuer's answer proves.

        Raises:
            WrongProof: The answer belongs to another log-in, or the issuer has refused it.
        """
        query, secret = request.query_params, cookies.begun_by(request.scope, shown, self._who.proxies)
        if not secret or not hmac.compare_digest(
            _derived(secret, _STATE).encode(), query.get("state", "").encode("utf-8", "replace")
        ):
            raise WrongProof("this log-in was not begun in this browser, or too long ago", guessed=False)
        if query.get("iss", self._prover.issuer.url) != self._prover.issuer.url:
            raise WrongProof("the answer comes from another issuer", guessed=False)
        code = query.get("code", "")
        if not code or len(code) > _MAX_LENGTH:
            raise WrongProof("the issuer has refused the log-in", guessed=False, remedy="try again")
        wait_s = self._who.guesses.wait_s(shown.address, "", shown.now)
        if wait_s:
            raise WrongProof("the code was not checked", retry_s=ceil(wait_s))
        form = {
            "code": code,
            "redirect_uri": self._callback(request, shown),
            "code_verifier": _derived(secret, _VERIFIER),
        }
        granted = await self._exchange(await self._endpoints(), form)
        caller, claims = await self._prover.verified(granted.id_token, shown.address, shown.now)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode("utf-8", "replace"), _derived(secret, _NONCE).encode()
        ):
            raise WrongProof("the issuer's token belongs to another log-in", caller.name)
        return replace(caller, until=max(caller.until or 0.0, shown.now + BROWSER_S))

    async def _exchange(self, at: Endpoints, form: Mapping[str, str]) -> Granted:
        """Exchange the issuer's code for tokens.

        Raises:
            WrongProof: The issuer refuses the code, or does not answer.
        """
        client = self._prover.client
        async with self._exchanges:
            try:
                return await asyncio.to_thread(
                    of_code, at, (client.id, client.secret), form, self._prover.issuer.fetcher
                )
            except Refused as refused:
                raise _wrong(refused) from refused
            except IssuerError as error:
                raise WrongProof("the issuer does not answer", guessed=False, remedy="try again") from error

    async def _endpoints(self) -> Endpoints:
        """Return the issuer's endpoints for log-ins by browser.

        Raises:
            WrongProof: The issuer has none.
        """
        at = await self._prover.issuer.endpoints()
        if not (at.authorization and at.token):
            raise WrongProof("the issuer does not support log-in by browser", guessed=False)
        return at

    def _callback(self, request: Request, shown: Shown) -> str:
        scheme = "https" if cookies.is_sealed(request.scope, shown, self._who.proxies) else "http"
        return f"{scheme}://{request.headers['host']}{CALLBACK}"


_PAGE: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def _page(problem: str, status: int, again: str, headers: Mapping[str, str] | None = None) -> Response:
    text = _PROBLEM.format(escape(problem), again)
    return Response(text, status, {**_PAGE, **(headers or {})}, "text/html")


def _wrong(refused: Refused) -> WrongProof:
    """Return the error for a refusal of the issuer.

    An unknown code counts as a guess; other refusals are logged for the operator.
    """
    if refused.error == "invalid_grant":
        return WrongProof("the issuer does not accept the code")
    logger.warning("a browser's login fails: %s", refused.what)
    return WrongProof(
        f"the issuer refuses the scheduler: {refused.error[:_MAX_ERROR]}",
        guessed=False,
        remedy="tell the operator: see the scheduler's log, --oidc-client-id and --oidc-client-secret-file",
    )


def _derived(secret: str, what: str) -> str:
    """Return a value for one purpose that derives from the secret in the browser's cookie."""
    digest = hmac.digest(secret.encode("utf-8", "replace"), what.encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _challenge(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
