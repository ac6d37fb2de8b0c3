"""Logins of a public client at an issuer: device login (RFC 8628), refresh, browser code, and revocation (RFC 7009)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote_plus, urlsplit

import msgspec

from mesos_gpu.adapters.oidc.discovery import Endpoints
from mesos_gpu.adapters.oidc.fetching import Answer, Fetcher, IssuerError
from mesos_gpu.errors import MesosGpuError

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
USUAL_INTERVAL_S: Final = 5.0  # RFC 8628, section 3.2
MAX_S: Final = 3600.0
_T = TypeVar("_T")
_LOOK: Final = "check the issuer's settings for this client"


class Refused(MesosGpuError):
    """An issuer refuses a request; `error` is its error code (exit status EX_NOPERM).

    Args:
        error: Error code of OAuth.
        about: Description by the issuer; "" for none.
    """

    exit_code = 77

    def __init__(self, error: str, about: str) -> None:
        super().__init__(f"the issuer refuses: {error}{f' ({about})' if about else ''}", remedy=_LOOK)
        self.error = error


@dataclass(frozen=True, slots=True)
class Granted:
    """Tokens from an issuer; "" for tokens that it did not give. `expires_in`: seconds; 0 if not given."""

    id_token: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """A device login that waits for the user.

    Attributes:
        code: Code by which the client polls.
        user_code: Code for the user to type.
        uri: Page on which to type it.
        whole_uri: Page with the code already entered; "" if the issuer has none.
        expires_in: Seconds until the login expires.
        interval_s: Seconds between two polls.
    """

    code: str = field(repr=False)
    user_code: str
    uri: str
    whole_uri: str
    expires_in: float
    interval_s: float


class _Tokens(msgspec.Struct):
    access_token: str = ""
    id_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0.0


class _Device(msgspec.Struct):
    """Answer to a request for device authorization (RFC 8628)."""

    device_code: str
    user_code: str
    expires_in: float
    verification_uri: str = ""
    verification_url: str = ""  # name of the field at Google and in Entra's first version
    verification_uri_complete: str = ""
    interval: float = USUAL_INTERVAL_S


class _Error(msgspec.Struct):
    error: str
    error_description: str = ""


def begin_device(at: Endpoints, client_id: str, scopes: Sequence[str], fetcher: Fetcher) -> Device:
    """Start a device login.

    Raises:
        IssuerError: The issuer does not answer properly, or has no device logins.
        Refused: This client may not use device logins.
    """
    if not at.device:
        raise IssuerError(
            f"{at.issuer} does not support device logins",
            remedy="log in with a token: mesos-gpu login --with-token",
        )
    answer = _read(fetcher.post(at.device, {"client_id": client_id, "scope": " ".join(scopes)}), _Device, at)
    page = answer.verification_uri or answer.verification_url
    for uri in (page, answer.verification_uri_complete or page):
        if urlsplit(uri).scheme not in ("http", "https") or not uri.isprintable():
            raise IssuerError(f"{at.issuer} gives an invalid login page", remedy=_LOOK)
    return Device(
        answer.device_code,
        answer.user_code,
        page,
        answer.verification_uri_complete,
        min(answer.expires_in, MAX_S),
        max(answer.interval, 1.0),
    )


def of_device(at: Endpoints, client_id: str, device: Device, fetcher: Fetcher) -> Granted:
    """Poll whether the user has approved a device login, and return its tokens.

    Raises:
        IssuerError: The issuer does not answer properly.
        Refused: The login is not approved, or not yet (`authorization_pending`, `slow_down`).
    """
    form = {"grant_type": DEVICE_GRANT, "device_code": device.code, "client_id": client_id}
    return _granted(fetcher.post(at.token, form), at)


def refreshed(at: Endpoints, client_id: str, refresh_token: str, fetcher: Fetcher) -> Granted:
    """Get new tokens with a refresh token.

    Raises:
        IssuerError: The issuer does not answer properly.
        Refused: The login has ended.
    """
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    return _granted(fetcher.post(at.token, form), at)


def of_code(at: Endpoints, client: tuple[str, str], code: Mapping[str, str], fetcher: Fetcher) -> Granted:
    """Exchange the code of a browser login for tokens.

    Args:
        at: Endpoints of the issuer.
        client: Id and secret of the client; the secret is "" for a public client.
        code: Form fields `code`, `redirect_uri` and `code_verifier`.
        fetcher: Sender of the request.

    Raises:
        IssuerError: The issuer does not answer properly.
        Refused: The issuer does not know the code.
    """
    client_id, secret = client
    form = {"grant_type": "authorization_code", "client_id": client_id, **code}
    if secret and at.secret_in_form:
        return _granted(fetcher.post(at.token, {**form, "client_secret": secret}), at)
    basic = (quote_plus(client_id), quote_plus(secret)) if secret else None  # RFC 6749, section 2.3.1
    return _granted(fetcher.post(at.token, form, basic), at)


def revoke(at: Endpoints, client_id: str, refresh_token: str, fetcher: Fetcher) -> None:
    """End a login, if the issuer supports that.

    Raises:
        IssuerError: The issuer does not answer.
    """
    if at.revocation:
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": client_id}
        fetcher.post(at.revocation, form)


def _granted(answer: Answer, at: Endpoints) -> Granted:
    tokens = _read(answer, _Tokens, at)
    return Granted(tokens.id_token, tokens.access_token, tokens.refresh_token, tokens.expires_in)


def _read(answer: Answer, kind: type[_T], at: Endpoints) -> _T:
    try:
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=kind, strict=False)  # Entra writes "3599"
        error = msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.DecodeError, ValueError, RecursionError) as damage:
        raise IssuerError(
            f"{at.issuer} answers {answer.status} without a valid body", remedy=_LOOK
        ) from damage
    raise Refused(error.error, error.error_description)
