"""Types of answers about the ways to log in, and their operation."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.adapters.oidc.client import TokenKind
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of
from mesos_gpu.model.access.caller import Proof

_TAKEN: Final = tuple(each for each in Proof if each not in (Proof.OPEN, Proof.NONE))


class OidcClient(TypedDict):
    """A public client of an OpenID Connect issuer, with which programs log in."""

    issuer: str
    client_id: str
    scopes: list[str]
    token: Annotated[str, one_of(*TokenKind)]


class LoginWays(TypedDict):
    """Ways to log in: accepted kinds of credentials in their order; empty if authentication is off."""

    proofs: list[Annotated[str, one_of(*_TAKEN)]]
    oidc: OidcClient | None


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/login"): Operation("read_login_ways", "Show the ways to log in", {200: LoginWays}),
}
