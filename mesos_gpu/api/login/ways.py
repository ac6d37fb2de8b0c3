"""GET /v1/login: the ways to log in, readable without authentication."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.rights import free, route
from mesos_gpu.api.login.handlers import LoginHandlers
from mesos_gpu.api.login.oidc import CALLBACK, PATH, OidcLogin
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.spec import ways as shapes
from mesos_gpu.model.access.caller import Proof


def ways(who: Who | None) -> shapes.LoginWays:
    """Return the accepted kinds of proofs, and what a public client of the issuer needs; it contains no secrets."""
    provers = who.provers if who else {}
    issuer = provers.get(Proof.OIDC)
    return {
        "proofs": [kind.value for kind in provers],
        "oidc": _client(issuer) if isinstance(issuer, OidcTokens) else None,
    }


def _client(prover: OidcTokens) -> shapes.OidcClient:
    return {
        "issuer": prover.issuer.url,
        "client_id": prover.client.cli_id or prover.client.id,
        "scopes": list(prover.client.scopes),
        "token": prover.client.shows.value,
    }


def login_routes(who: Who | None) -> list[Route]:
    """Return all routes for logging in and for the caller's identity. `who`: None if authentication is off."""
    handlers = LoginHandlers(who)

    async def told(_request: Request) -> Response:
        return json_answer(ways(who))

    return [
        route("/v1/login", GET=free(told)),
        route("/v1/whoami", GET=free(handlers.show)),
        route("/v1/session", POST=free(handlers.begin), DELETE=free(handlers.end)),
        route("/login", GET=free(handlers.page), POST=free(handlers.form)),
        *_at_issuer(who),
    ]


def _at_issuer(who: Who | None) -> list[Route]:
    issuer = who.provers.get(Proof.OIDC) if who else None
    if who is None or not isinstance(issuer, OidcTokens):
        return []
    login = OidcLogin(who, issuer)
    return [route(PATH, GET=free(login.begin)), route(CALLBACK, GET=free(login.end))]
