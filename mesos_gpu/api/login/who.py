"""Identification of callers by all proofs that a request shows; a wrong proof is refused, never ignored."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from starlette.types import Scope

from mesos_gpu.access import proofs
from mesos_gpu.access.guesses import Guesses
from mesos_gpu.access.proofs import Authorization, WrongProof
from mesos_gpu.adapters.proofs.prover import Prover, Shown
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.adapters.proofs.sparse import SparseLog
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.http.authenticate import note_address
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.login import cookies
from mesos_gpu.api.login.counts import HEADERS, SESSION, WRONG
from mesos_gpu.api.login.sessions import Session, Sessions, caller_by, is_token_of
from mesos_gpu.api.login.vouched import OF_CONNECTIONS, vouched_in
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller, Proof

logger = logging.getLogger("mesos_gpu.login")
CSRF_HEADER: Final = "x-csrf-token"
#: Routes that an operator may open to unauthenticated callers or close, by their name in --open-routes.
ROUTES: Final[Mapping[str, Sequence[str]]] = {
    "ping": ("/ping", "/v1/health"),
    "openapi": ("/v1/openapi.json",),
    "metrics": ("/metrics", "/metrics/prometheus"),
}
#: Paths that are served also with the cookie of an ended session: the log-in page and what belongs to it.
_PAGES: Final = ("/", "/login", "/login/oidc", "/login/oidc/callback", "/v1/session")
_LOGINS: Final = (("POST", "/login"), ("POST", "/v1/session"))  # their bodies contain proofs
_STATIC: Final = "/static/"
_FORWARDED: Final = "x-forwarded-for"


class Who:
    """Identifies callers. To be used on the event loop only."""

    def __init__(
        self,
        provers: Sequence[Prover],
        order: Sequence[Proof] = (),
        *,
        guesses: Guesses | None = None,
        proxies: Proxies | None = None,
        open_routes: Collection[str] = ("ping", "openapi"),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Accept several kinds of proofs.

        Args:
            provers: Verifiers of proofs, at most one of each kind.
            order: Every kind of proof, in order; empty for the default order.
            guesses: Record of wrong proofs, if the provers share one.
            proxies: Trusted proxies, whose X-Forwarded-For is believed.
            open_routes: Names in `ROUTES` that need no proof.
            now: Clock, in seconds since the epoch.
        """
        self.order = tuple(order or proofs.ORDER)
        self.provers: Mapping[Proof, Prover] = {
            prover.kind: prover
            for prover in sorted(provers, key=lambda prover: self.order.index(prover.kind))
        }
        self.guesses = Guesses() if guesses is None else guesses
        self.sessions = Sessions(self._is_valid)
        self._log = SparseLog(logger, "wrong proofs")
        self._open = {path: name in open_routes for name, paths in ROUTES.items() for path in paths}
        self.proxies, self._now = proxies or Proxies(), now

    async def log_in(self, scope: Scope, credentials: Authorization) -> tuple[Caller, dict[str, str]]:
        """Begin a session by credentials from a body; return the caller and the header that sets the cookie.

        A session that the browser had ends.

        Raises:
            Refusal: The credentials are wrong (401), or there were too many wrong ones (429).
        """
        kind, shown = SESSION, None
        try:
            shown = replace(self.shown(scope), authorization=credentials)
            for kind_of, prover in self.provers.items():
                kind = kind_of.value
                caller = await prover.identify(shown) if kind_of in _BY_HEADER else None
                if caller is not None:
                    return self.begin(scope, shown, caller)
            raise WrongProof(
                "none of this scheduler's log-in methods accepts these credentials", guessed=False
            )
        except WrongProof as wrong:
            raise self.refused(scope, wrong, kind, shown) from wrong

    def begin(self, scope: Scope, shown: Shown, caller: Caller) -> tuple[Caller, dict[str, str]]:
        """Begin a session of a caller whose name is proved; return the caller and the header that sets the cookie.

        A session that the browser had ends.

        Raises:
            Refusal: There are several cookies.
        """
        self.guesses.right(shown.address, caller.name, shown.now)
        self.log_out(scope)
        note.about("name", caller.name)
        cookie, session = self.sessions.begin(caller, shown.now)
        cookie_header = cookies.given(scope, shown, self.proxies, cookie, session.until() - shown.now)
        return caller_by(session, shown.address), dict(cookie_header)

    def log_out(self, scope: Scope) -> dict[str, str]:
        """End the session of a request's cookie, if there is one; return the header that deletes the cookie.

        Raises:
            Refusal: There are several cookies.
        """
        shown = None
        try:
            shown = self.shown(scope)
            cookie = cookies.read(scope, shown, self.proxies)
        except WrongProof as wrong:
            raise self.refused(scope, wrong, SESSION, shown) from wrong
        if cookie is None:
            return {}
        self.sessions.end(cookie)
        return dict(cookies.forgotten(scope, shown, self.proxies))

    def csrf_of(self, caller: Caller) -> str | None:
        """Return the CSRF token that a session's page sends with changes; None if the session has ended."""
        session = self.sessions.by_id(caller.proof_id)
        return session.csrf if session else None

    async def identify(self, scope: Scope) -> Caller:
        """Return the caller of a request; `NOBODY`, with the address, if it shows no proof.

        Raises:
            Refusal: A proof is wrong (401), there were too many wrong ones (429), or a request of a browser's session
                does not come from a page of this server (403).
        """
        kind, shown = "", None
        try:
            kind = HEADERS
            shown = self.shown(scope)
            note_address(scope, shown.address)
            callers: list[Caller] = []
            for kind_of, prover in self.provers.items():
                kind = kind_of.value
                caller = await prover.identify(shown)
                if caller is not None:
                    callers.append(caller)
                    self.guesses.right(shown.address, caller.name, shown.now)
            kind = HEADERS
            callers += [caller for caller in vouched_in(scope) if caller.proof in self.provers]
            if shown.authorization and not any(caller.proof in _BY_HEADER for caller in callers):
                raise WrongProof(f"{_scheme(shown)} is not accepted here", guessed=False)
            kind = SESSION
            session = self.session_of(scope, shown)
            if session is not None:
                callers.append(caller_by(session, shown.address))
        except WrongProof as wrong:
            raise self.refused(scope, wrong, kind, shown) from wrong
        caller = proofs.first(self.order, callers)
        if caller is None:
            return self._unproved(scope["path"], shown)
        if caller.session and session is not None:
            _check_csrf(scope, shown, session)
        return caller

    async def of_connection(self, scope: Scope) -> tuple[str, Sequence[Caller]]:
        """Return the address of a request, and the callers that its connection proves, which cannot be forwarded.

        Raises:
            Refusal: See `identify`.
        """
        kind, shown = HEADERS, None
        try:
            shown = self.shown(scope)
            note_address(scope, shown.address)
            callers = []
            for kind_of in OF_CONNECTIONS:
                kind, prover = kind_of.value, self.provers.get(kind_of)
                caller = await prover.identify(shown) if prover is not None else None
                callers += [caller] if caller is not None else []
        except WrongProof as wrong:
            raise self.refused(scope, wrong, kind, shown) from wrong
        return shown.address, callers

    def shows_more(self, scope: Scope) -> bool:
        """Return whether a request shows a proof that is forwarded with it: a header Authorization or a session cookie.

        The proof itself is not verified.
        """
        try:
            shown = self.shown(scope)
            return shown.authorization is not None or cookies.read(scope, shown, self.proxies) is not None
        except WrongProof:
            return True

    def _unproved(self, path: str, shown: Shown) -> Caller:
        """Return the caller of a request without any proof; some routes need none.

        Raises:
            Refusal: The operator has closed the route (401).
        """
        is_open = self._open.get(path)
        if is_open is False:
            what = f"{path} needs authentication, and the request has none"
            raise Refusal(401, "unauthenticated", what, remedy="send a token; or see --open-routes")
        return ANYBODY if is_open else replace(NOBODY, address=shown.address)

    def shown(self, scope: Scope) -> Shown:
        """Return the address and the headers of a request, from which callers are proved.

        Raises:
            WrongProof: A header is malformed.
        """
        headers: dict[str, list[str]] = {}
        for name, value in scope[HEADERS]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        client = scope.get("client")
        peer, extensions = str(client[0]) if client else "", scope.get("extensions") or {}
        behind = self.proxies.are_behind(peer, extensions)
        hops = headers.get(_FORWARDED, ()) if behind else ()
        return Shown(
            address=proofs.forwarded_from(peer, hops, self.proxies.networks),
            peer_address=peer,
            headers=headers,
            authorization=proofs.authorization(headers.get("authorization", ())),
            extensions=extensions,
            now=self._now(),
        )

    def session_of(self, scope: Scope, shown: Shown) -> Session | None:
        """Return the session whose cookie a request shows.

        None if it shows none, or if the session has ended and the request is for the log-in page.

        Raises:
            WrongProof: The session has ended, or there are several cookies.
        """
        cookie = cookies.read(scope, shown, self.proxies)
        if cookie is None:
            return None
        try:
            return self.sessions.find(cookie, shown.now)
        except WrongProof:
            if scope["path"] in _PAGES or scope["path"].startswith(_STATIC):
                return None
            raise

    def refused(self, scope: Scope, wrong: WrongProof, kind: str, shown: Shown | None) -> Refusal:
        """Count and log a wrong proof; return the refusal: 429 after too many wrong ones, else 401."""
        client = scope.get("client")
        address = shown.address if shown else str(client[0]) if client else ""
        note.claimed(wrong.claimed, kind)
        WRONG.count(kind)
        retry_s = wrong.retry_s
        if wrong.guessed and not retry_s:
            retry_s = ceil(self.guesses.wait_s(address, wrong.claimed, self._now()))
            if not retry_s:
                self.guesses.wrong(address, wrong.claimed, self._now())
        self._log.warn(
            "failed authentication from %s (%s): %s%s",
            address or "the socket",
            kind,
            wrong.what,
            f"; it claims to be {wrong.claimed!r}" if wrong.claimed else "",
        )
        if retry_s:
            what, headers = (
                f"{wrong.what}; there were too many failed attempts",
                {"Retry-After": str(retry_s)},
            )
            return Refusal(429, "limit", what, remedy=f"wait for {retry_s} s", headers=headers)
        cookie_header = cookies.forgotten(scope, shown, self.proxies) if kind == SESSION and shown else None
        return Refusal(401, "unauthenticated", wrong.what, remedy=wrong.remedy, headers=cookie_header)

    def stands(self, caller: Caller) -> bool:
        """Return whether a caller's proof is still valid."""
        if not caller.is_proved:
            return True  # without a proof nothing can expire
        now = self._now()
        if caller.until is not None and now >= caller.until:
            return False
        return self.sessions.is_there(caller.proof_id, now) if caller.session else self._is_valid(caller)

    def challenges(self, scope: Scope) -> Sequence[str]:
        """Return the values of WWW-Authenticate, which name the accepted proofs.

        A browser is not asked for HTTP basic: it would ask its user in a window of its own, and send the password with
        every later request, also for pages of others.
        """
        in_browser = any(
            name.startswith((b"sec-fetch-", b"x-requested-with"))
            or (name == b"accept" and b"text/html" in value)
            for name, value in scope[HEADERS]
        )
        challenges = dict.fromkeys(prover.challenge for prover in self.provers.values() if prover.challenge)
        return [
            challenge
            for challenge in challenges
            if not (in_browser and challenge.lower().startswith("basic"))
        ]

    def _is_valid(self, caller: Caller) -> bool:
        """Return whether the kind of proof is accepted and a caller's proof is still valid."""
        prover = self.provers.get(caller.proof)
        ended = caller.until is not None and self._now() >= caller.until
        return prover is not None and not ended and prover.stands(caller)


_BY_HEADER: Final = (Proof.TOKEN, Proof.PASSWORD, Proof.OIDC)


def _scheme(shown: Shown) -> str:
    """Return what kind of Authorization header was sent, without what may be secret."""
    scheme = shown.authorization.scheme if shown.authorization else ""
    if scheme == "bearer":
        return "a bearer token that this scheduler did not issue (mgpu_ID_SECRET)"
    return (
        f"the authentication scheme {scheme}"
        if scheme in ("basic", "digest", "negotiate")
        else "this authentication scheme"
    )


def _check_csrf(scope: Scope, shown: Shown, session: Session) -> None:
    """Check the CSRF token of a changing request of a session.

    Raises:
        Refusal: The token is missing or wrong (403).
    """
    if scope["method"] in SAFE or (scope["method"], scope["path"]) in _LOGINS:
        return
    sent = shown.headers.get(CSRF_HEADER, ())
    if len(sent) != 1 or not is_token_of(session, sent[0]):
        what = "a browser's session changes nothing without the X-CSRF-Token of its page"
        raise Refusal(
            403, "forbidden", what, remedy="load the page again; programs send a token in place of a cookie"
        )
