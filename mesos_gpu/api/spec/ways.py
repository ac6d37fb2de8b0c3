"""What /v1 says of how to log in: as types, and its operation."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.adapters.oidc.client import Shows
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of
from mesos_gpu.model.access.caller import Proof

_TAKEN: Final = tuple(each for each in Proof if each not in (Proof.OPEN, Proof.NONE))


class OidcClient(TypedDict):
    """A public client of an OpenID Connect issuer, by which programs log in."""

    issuer: str
    client_id: str
    scopes: list[str]
    token: Annotated[str, one_of(*Shows)]


class LoginWays(TypedDict):
    """How somebody logs in: proofs in the order in which they count; none: nobody is asked."""

    proofs: list[Annotated[str, one_of(*_TAKEN)]]
    oidc: OidcClient | None


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/login"): Operation("read_login_ways", "How to log in", {200: LoginWays}),
}
