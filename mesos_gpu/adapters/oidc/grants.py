"""Logins at an issuer as a public client: by device (RFC 8628), by a refresh token, and their end (RFC 7009)."""

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
_LOOK: Final = "look at the issuer's settings for this client"


class Refused(MesosGpuError):
    """An issuer refuses; `error` is its word for why (EX_NOPERM)."""

    exit_code = 77

    def __init__(self, error: str, about: str) -> None:
        """`about`: more, in words, if the issuer says more."""
        super().__init__(f"the issuer refuses: {error}{f' ({about})' if about else ''}", remedy=_LOOK)
        self.error = error


@dataclass(frozen=True, slots=True)
class Granted:
    """What an issuer gives; "": not that. `expires_in`: seconds; 0: not said."""

    id_token: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """A login that waits for a person.

    Attributes:
        code: What it is asked for by.
        user_code: What the person types.
        uri: Where.
        whole_uri: Where it is typed already; "": nowhere.
        expires_in: Seconds.
        interval_s: From one try to the next.
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
    device_code: str
    user_code: str
    expires_in: float
    verification_uri: str = ""
    verification_url: str = ""  # as Google and Entra's first version call it
    verification_uri_complete: str = ""
    interval: float = USUAL_INTERVAL_S


class _Error(msgspec.Struct):
    error: str
    error_description: str = ""


def begin_device(at: Endpoints, client_id: str, scopes: Sequence[str], fetcher: Fetcher) -> Device:
    """Ask for a code.

    Raises:
        IssuerError: It does not answer as it should, or has no such logins.
        Refused: Not for this client.
    """
    if not at.device:
        raise IssuerError(
            f"{at.issuer} has no logins by device",
            remedy="log in with a token: mesos-gpu login --with-token",
        )
    said = _read(fetcher.post(at.device, {"client_id": client_id, "scope": " ".join(scopes)}), _Device, at)
    page = said.verification_uri or said.verification_url
    for uri in (page, said.verification_uri_complete or page):
        if urlsplit(uri).scheme not in ("http", "https") or not uri.isprintable():
            raise IssuerError(f"{at.issuer} names a page that is none", remedy=_LOOK)
    return Device(
        said.device_code,
        said.user_code,
        page,
        said.verification_uri_complete,
        min(said.expires_in, MAX_S),
        max(said.interval, 1.0),
    )


def of_device(at: Endpoints, client_id: str, device: Device, fetcher: Fetcher) -> Granted:
    """Ask whether the person has allowed it.

    Raises:
        IssuerError: It does not answer as it should.
        Refused: Not, or not yet (`authorization_pending`, `slow_down`).
    """
    form = {"grant_type": DEVICE_GRANT, "device_code": device.code, "client_id": client_id}
    return _granted(fetcher.post(at.token, form), at)


def refreshed(at: Endpoints, client_id: str, refresh_token: str, fetcher: Fetcher) -> Granted:
    """Get new tokens.

    Raises:
        IssuerError: It does not answer as it should.
        Refused: The login has ended.
    """
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    return _granted(fetcher.post(at.token, form), at)


def of_code(at: Endpoints, client: tuple[str, str], code: Mapping[str, str], fetcher: Fetcher) -> Granted:
    """Exchange a code of a browser's login.

    Args:
        at: The issuer's addresses.
        client: Its id and secret; a secret of "": it is a public client.
        code: `code`, `redirect_uri` and `code_verifier`.
        fetcher: What asks.

    Raises:
        IssuerError: It does not answer as it should.
        Refused: The code is not one of its.
    """
    client_id, secret = client
    form = {"grant_type": "authorization_code", "client_id": client_id, **code}
    if secret and at.secret_in_form:
        return _granted(fetcher.post(at.token, {**form, "client_secret": secret}), at)
    basic = (quote_plus(client_id), quote_plus(secret)) if secret else None  # RFC 6749, section 2.3.1
    return _granted(fetcher.post(at.token, form, basic), at)


def revoke(at: Endpoints, client_id: str, refresh_token: str, fetcher: Fetcher) -> None:
    """End a login, where the issuer has a way to.

    Raises:
        IssuerError: It does not answer.
    """
    if at.revocation:
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": client_id}
        fetcher.post(at.revocation, form)


def _granted(answer: Answer, at: Endpoints) -> Granted:
    said = _read(answer, _Tokens, at)
    return Granted(said.id_token, said.access_token, said.refresh_token, said.expires_in)


def _read(answer: Answer, kind: type[_T], at: Endpoints) -> _T:
    try:
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=kind, strict=False)  # Entra writes "3599"
        error = msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.DecodeError, ValueError, RecursionError) as damage:
        raise IssuerError(
            f"{at.issuer} answers {answer.status} and nothing to read", remedy=_LOOK
        ) from damage
    raise Refused(error.error, error.error_description)
