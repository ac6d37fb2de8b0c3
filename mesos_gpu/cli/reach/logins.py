"""Logins stored by `mesos-gpu login`, by context or scheduler."""

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mesos_gpu.cli.reach import private
from mesos_gpu.errors import Damaged, MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.adapters.oidc.grants import Granted

MARGIN_S: Final = 30.0  # remaining lifetime at which a token is renewed


class NotLoggedIn(MesosGpuError):
    """A login is needed, and no valid one is stored (EX_NOPERM)."""

    exit_code = 77

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="log in: mesos-gpu login")


class Issued(msgspec.Struct, frozen=True):
    """Data of a login at an issuer: the client, and the refresh token for new tokens."""

    issuer: str
    client_id: str
    shows: str  # id_token or access_token
    refresh_token: str = ""
    cacert: str = ""

    def __repr__(self) -> str:
        """Return the issuer without secrets."""
        return f"Issued({self.issuer!r})"


class Login(msgspec.Struct, frozen=True):
    """Credentials for one scheduler.

    Attributes:
        origin: Origin of that scheduler; the token is sent nowhere else.
        token: Token to send.
        name: User that the token stands for; "" if not known.
        until: Expiry in seconds since the epoch; None if not known.
        token_id: Id of a token created by the login, which the logout revokes; "" for other tokens.
        issued: Data of the issuer's login; None for a token of the scheduler, or one that was given.
    """

    origin: str
    token: str
    name: str = ""
    until: float | None = None
    token_id: str = ""
    issued: Issued | None = None

    def __repr__(self) -> str:
        """Return origin and user without secrets."""
        return f"Login({self.origin!r}, {self.name!r})"


class Logins(msgspec.Struct, frozen=True):
    """All logins of a user, by `context NAME` or by origin."""

    logins: dict[str, Login] = {}


def key_of(context: str, origin: str) -> str:
    """Return the key of a login: of its context, or of the origin without a context."""
    return f"context {context}" if context else origin


def load() -> dict[str, Login]:
    """Read the logins.

    Raises:
        BadConfiguration: Other users could have read the file.
        Damaged: The file is invalid.
    """
    path = private.config_home() / private.LOGINS
    data = private.read(path)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=Logins).logins
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # The error's value is not shown, because it may be a secret.
        raise Damaged(
            f"{path} is not a valid file of `mesos-gpu login`", remedy="remove this file, and log in again"
        ) from error


def keep(key: str, login: Login) -> None:
    """Store a login, replacing an earlier one of this key. The caller holds `private.locked`."""
    _save({**load(), key: login})


def drop(key: str) -> Login | None:
    """Remove a login and return it; None if there was no login. The caller holds `private.locked`."""
    logins = load()
    removed = logins.pop(key, None)
    if removed is not None:
        _save(logins)
    return removed


def find(context: str, origin: str) -> tuple[str, Login] | None:
    """Return the login for a scheduler: that of the context, else that of the origin; never one for another origin."""
    logins = load()
    for key in dict.fromkeys((key_of(context, origin), origin)):
        login = logins.get(key)
        if login is not None and login.origin == origin:
            return key, login
    return None


def _save(logins: dict[str, Login]) -> None:
    private.write(private.config_home() / private.LOGINS, msgspec.json.encode(Logins(logins)) + b"\n")


class Renewed:
    """A login's token, renewed at its issuer before it expires.

    Args:
        key: Key of the stored login.
        login: Login stored under that key.
    """

    def __init__(self, key: str, login: Login) -> None:
        self._key, self._login = key, login

    def __call__(self) -> str:
        """Return a valid token, renewed if needed.

        Raises:
            NotLoggedIn: The login is no longer valid.
            IssuerError: The issuer does not answer, and the token has expired.
        """
        if _is_due(self._login):
            self._login = _renewed(self._key, self._login.origin)
        return self._login.token


def _is_due(login: Login) -> bool:
    return login.until is not None and time.time() > login.until - MARGIN_S


def _renewed(key: str, origin: str) -> Login:
    """Renew the login of a key, unless another command has done it meanwhile: a refresh token works only once."""
    with private.locked():
        login = load().get(key)
        if login is None or login.origin != origin:
            raise NotLoggedIn(f"you are logged out of {origin}")
        if not _is_due(login):
            return login
        try:
            newer = _refreshed(login)
        except MesosGpuError:
            if login.until is not None and time.time() < login.until:
                return login
            raise
        keep(key, newer)
        return newer


def _refreshed(login: Login) -> Login:
    from mesos_gpu.adapters.oidc.discovery import discover
    from mesos_gpu.adapters.oidc.fetching import Fetcher
    from mesos_gpu.adapters.oidc.grants import Refused, refreshed

    issued = login.issued
    if issued is None or not issued.refresh_token:
        raise NotLoggedIn(f"the login at {login.origin} has expired")
    fetcher = Fetcher(Path(issued.cacert) if issued.cacert else None)
    try:
        granted = refreshed(discover(issued.issuer, fetcher), issued.client_id, issued.refresh_token, fetcher)
    except Refused as refused:
        raise NotLoggedIn(f"{issued.issuer} does not renew the login: {refused.error}") from refused
    return of_issuer(login.origin, issued, granted)


def of_issuer(origin: str, issued: Issued, granted: "Granted") -> Login:
    """Return the login for an issuer's tokens.

    Raises:
        NotLoggedIn: The token for the scheduler is missing.
    """
    token = granted.id_token if issued.shows == "id_token" else granted.access_token
    if not token:
        raise NotLoggedIn(f"{issued.issuer} did not send the {issued.shows} that the scheduler needs")
    claims = _claims_of(token)
    expires = claims.get("exp")
    lives_until = time.time() + granted.expires_in if granted.expires_in else None
    until = float(expires) if isinstance(expires, int | float) else lives_until
    name = next((str(claims[key]) for key in ("preferred_username", "email", "sub") if claims.get(key)), "")
    refresh = granted.refresh_token or issued.refresh_token
    return Login(origin, token, name, until, issued=msgspec.structs.replace(issued, refresh_token=refresh))


def _claims_of(token: str) -> dict[str, object]:
    """Return a token's claims without verification, for display only."""
    try:
        part = token.split(".")[1]
        return msgspec.json.decode(
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, object]
        )
    except (IndexError, ValueError, RecursionError):
        return {}
