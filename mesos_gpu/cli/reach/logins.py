"""What `mesos-gpu login` keeps, and for which scheduler."""

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mesos_gpu.cli.reach import private
from mesos_gpu.errors import Damaged, MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.adapters.oidc.grants import Granted

MARGIN_S: Final = 30.0  # before its end that a token is renewed


class NotLoggedIn(MesosGpuError):
    """A login is needed, and there is none that is still good (EX_NOPERM)."""

    exit_code = 77

    def __init__(self, what: str) -> None:
        """`what` is missing."""
        super().__init__(what, remedy="log in: mesos-gpu login")


class Issued(msgspec.Struct, frozen=True):
    """How an issuer gave a login: to which client, and what a new token is got with."""

    issuer: str
    client_id: str
    shows: str  # id_token or access_token
    refresh_token: str = ""
    cacert: str = ""

    def __repr__(self) -> str:
        """Name the issuer, and nothing secret."""
        return f"Issued({self.issuer!r})"


class Login(msgspec.Struct, frozen=True):
    """A proof for one scheduler.

    Attributes:
        origin: Of that scheduler: it is sent nowhere else.
        token: What is sent.
        name: Whom it proves, as far as was told.
        until: When it ends, seconds since the epoch; None: not known.
        token_id: Of a token that the login has made, and the logout revokes; "": there is none.
        issued: None: it is a token of the scheduler, or one that was given.
    """

    origin: str
    token: str
    name: str = ""
    until: float | None = None
    token_id: str = ""
    issued: Issued | None = None

    def __repr__(self) -> str:
        """Name whom it is for, and nothing secret."""
        return f"Login({self.origin!r}, {self.name!r})"


class Logins(msgspec.Struct, frozen=True):
    """All of a user, by what each is for: `context NAME`, or an origin."""

    logins: dict[str, Login] = {}


def key_of(context: str, origin: str) -> str:
    """What a login of a context is found by; without one, of an address."""
    return f"context {context}" if context else origin


def load() -> dict[str, Login]:
    """Read them.

    Raises:
        BadConfiguration: Others may have read the file.
        Damaged: It is not what `mesos-gpu login` writes.
    """
    path = private.config_home() / private.LOGINS
    data = private.read(path)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=Logins).logins
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # The error is not shown with its value: that may be a secret.
        raise Damaged(
            f"{path} is not what `mesos-gpu login` writes", remedy="remove it, and log in"
        ) from error


def keep(key: str, login: Login) -> None:
    """Remember a login in place of the one before. The caller has `private.locked`."""
    _save({**load(), key: login})


def drop(key: str) -> Login | None:
    """Forget a login; None: there was none. The caller has `private.locked`."""
    each = load()
    gone = each.pop(key, None)
    if gone is not None:
        _save(each)
    return gone


def find(context: str, origin: str) -> tuple[str, Login] | None:
    """The login for a scheduler: of the context, else of the address; never one that was made for another."""
    each = load()
    for key in dict.fromkeys((key_of(context, origin), origin)):
        login = each.get(key)
        if login is not None and login.origin == origin:
            return key, login
    return None


def _save(each: dict[str, Login]) -> None:
    private.write(private.config_home() / private.LOGINS, msgspec.json.encode(Logins(each)) + b"\n")


class Renewed:
    """A login's token, renewed at its issuer before it ends."""

    def __init__(self, key: str, login: Login) -> None:
        """Use a login that is kept by this key."""
        self._key, self._login = key, login

    def __call__(self) -> str:
        """Give the token that is good now.

        Raises:
            NotLoggedIn: There is none any more.
            IssuerError: The issuer does not answer, and the token has ended.
        """
        if _is_due(self._login):
            self._login = _renewed(self._key, self._login.origin)
        return self._login.token


def _is_due(login: Login) -> bool:
    return login.until is not None and time.time() > login.until - MARGIN_S


def _renewed(key: str, origin: str) -> Login:
    """The login of a key, renewed if no other command has done that meanwhile: a refresh token is good for once."""
    with private.locked():
        login = load().get(key)
        if login is None or login.origin != origin:
            raise NotLoggedIn(f"you have logged out of {origin}")
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
    """The login that an issuer's tokens are.

    Raises:
        NotLoggedIn: What is to be shown to the scheduler is not among them.
    """
    token = granted.id_token if issued.shows == "id_token" else granted.access_token
    if not token:
        raise NotLoggedIn(f"{issued.issuer} has sent no {issued.shows}")
    claims = _claims_of(token)
    expires = claims.get("exp")
    lives_until = time.time() + granted.expires_in if granted.expires_in else None
    until = float(expires) if isinstance(expires, int | float) else lives_until
    name = next((str(claims[key]) for key in ("preferred_username", "email", "sub") if claims.get(key)), "")
    refresh = granted.refresh_token or issued.refresh_token
    return Login(origin, token, name, until, issued=msgspec.structs.replace(issued, refresh_token=refresh))


def _claims_of(token: str) -> dict[str, object]:
    """What a token says, to be shown: whoever takes it verifies it."""
    try:
        part = token.split(".")[1]
        return msgspec.json.decode(
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, object]
        )
    except (IndexError, ValueError, RecursionError):
        return {}
