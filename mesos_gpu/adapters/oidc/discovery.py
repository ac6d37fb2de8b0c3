"""What an issuer says of itself: OpenID Connect Discovery 1.0."""

from dataclasses import dataclass
from typing import Final

import msgspec

from mesos_gpu.adapters.oidc.fetching import Fetcher, IssuerError, check_url
from mesos_gpu.errors import BadConfiguration

_PATH: Final = "/.well-known/openid-configuration"
_KEYS: Final = "jwks_uri"
_BASIC: Final = "client_secret_basic"
_FORM: Final = "client_secret_post"
#: In the order of the fields of `Endpoints`.
_ADDRESSES: Final = (
    _KEYS,
    "authorization_endpoint",
    "token_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of an issuer; "": it has no such. secret_in_form: whether it takes a client's secret in the form of a
    request only, and not by HTTP basic."""

    issuer: str
    keys: str
    authorization: str
    token: str
    device: str
    revocation: str
    secret_in_form: bool = False


class _Document(msgspec.Struct):
    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)  # section 3


def discover(issuer: str, fetcher: Fetcher) -> Endpoints:
    """Ask an issuer.

    Raises:
        IssuerError: It does not answer as it should, or says that it is another.
    """
    url = issuer.rstrip("/") + _PATH
    answer = fetcher.get(url)
    if answer.status != 200:
        raise IssuerError(f"{url} answers {answer.status}", remedy="see that this is an issuer's address")
    try:
        said = msgspec.json.decode(answer.body, type=_Document)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IssuerError(f"{url} is no document of OpenID Connect", remedy="look at the issuer") from error
    if said.issuer != issuer:
        raise IssuerError(
            f"{url} says that its issuer is {said.issuer!r}", remedy=f"name it exactly so, not {issuer!r}"
        )
    methods = said.token_endpoint_auth_methods_supported
    try:
        keys, authorization, token, device, revocation = (_address(said, name) for name in _ADDRESSES)
    except BadConfiguration as error:
        raise IssuerError(f"{url}: {error.what}", remedy="look at the issuer") from error
    in_form = _FORM in methods and _BASIC not in methods
    return Endpoints(issuer, keys, authorization, token, device, revocation, in_form)


def _address(said: _Document, name: str) -> str:
    url = str(getattr(said, name))
    return check_url(url, name) if url or name == _KEYS else ""
