"""OpenID Connect Discovery 1.0: the endpoints of an issuer."""

from dataclasses import dataclass
from typing import Final

import msgspec

from mesos_gpu.adapters.oidc.fetching import Fetcher, IssuerError, check_url
from mesos_gpu.errors import BadConfiguration

_PATH: Final = "/.well-known/openid-configuration"
_KEYS: Final = "jwks_uri"
_BASIC: Final = "client_secret_basic"
_FORM: Final = "client_secret_post"
#: Fields of the document, in the order of the fields of `Endpoints`.
_ADDRESSES: Final = (
    _KEYS,
    "authorization_endpoint",
    "token_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of an issuer; "" for endpoints that it does not have.

    Attributes:
        secret_in_form: Whether it accepts a client's secret only in the form of a request, not by HTTP basic.
    """

    issuer: str
    keys: str
    authorization: str
    token: str
    device: str
    revocation: str
    secret_in_form: bool = False


class _Document(msgspec.Struct):
    """Discovery document of an issuer (OpenID Connect Discovery 1.0)."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)  # section 3


def discover(issuer: str, fetcher: Fetcher) -> Endpoints:
    """Read the endpoints of an issuer.

    Raises:
        IssuerError: The issuer does not answer properly, or has another name.
    """
    url = issuer.rstrip("/") + _PATH
    answer = fetcher.get(url)
    if answer.status != 200:
        raise IssuerError(f"{url} answers {answer.status}", remedy="check that this is an issuer's address")
    try:
        document = msgspec.json.decode(answer.body, type=_Document)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IssuerError(
            f"{url} is not an OpenID Connect discovery document", remedy="check the issuer"
        ) from error
    if document.issuer != issuer:
        raise IssuerError(
            f"{url} says that its issuer is {document.issuer!r}",
            remedy=f"use exactly this name, not {issuer!r}",
        )
    methods = document.token_endpoint_auth_methods_supported
    try:
        keys, authorization, token, device, revocation = (_address(document, name) for name in _ADDRESSES)
    except BadConfiguration as error:
        raise IssuerError(f"{url}: {error.what}", remedy="check the issuer") from error
    in_form = _FORM in methods and _BASIC not in methods
    return Endpoints(issuer, keys, authorization, token, device, revocation, in_form)


def _address(document: _Document, name: str) -> str:
    url = str(getattr(document, name))
    return check_url(url, name) if url or name == _KEYS else ""
