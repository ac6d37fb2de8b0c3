"""Cookies of sessions, and of log-ins in progress at an issuer: reading, setting and deleting them."""

from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.api.login.sessions import COOKIE, SECURE_COOKIE

_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Strict"
_BEGUN: Final = "mesos_gpu_login"
#: Lax: the cookie must come with the issuer's redirect from another site, but never with forms or scripts of one.
_BEGUN_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Lax"


def is_sealed(scope: Scope, shown: Shown, proxies: Proxies) -> bool:
    """Return whether the browser uses TLS, to this server or to a trusted proxy that says so."""
    if scope.get("scheme") == "https":
        return True
    protocols = shown.headers.get("x-forwarded-proto", ())
    return list(protocols) == ["https"] and proxies.are_behind(shown.peer_address, shown.extensions)


def read(scope: Scope, shown: Shown, proxies: Proxies) -> str | None:
    """Return the value of the session cookie; None without one.

    Raises:
        WrongProof: There are several: another host of the same domain may have set one of them.
    """
    return _value(shown, _name(is_sealed(scope, shown, proxies)))


def begun_by(scope: Scope, shown: Shown, proxies: Proxies) -> str | None:
    """Return the value of the cookie of a log-in in progress; None without one.

    Raises:
        WrongProof: There are several cookies.
    """
    return _value(shown, _login_name(is_sealed(scope, shown, proxies)))


def _value(shown: Shown, name: str) -> str | None:
    """Return the value of a cookie; None if it is missing.

    Raises:
        WrongProof: There are several cookies with the name.
    """
    pairs = [
        pair.strip().partition("=")
        for header in shown.headers.get("cookie", ())
        for pair in header.split(";")
    ]
    values = [value for key, _, value in pairs if key == name]
    if len(values) > 1:
        raise WrongProof(f"there are several cookies {name}", guessed=False, remedy="log in again")
    return values[0] if values else None


def given(scope: Scope, shown: Shown, proxies: Proxies, value: str, life_s: float) -> Mapping[str, str]:
    """Return the header that sets the session cookie, for `life_s` seconds."""
    return _header(is_sealed(scope, shown, proxies), value, int(life_s))


def forgotten(scope: Scope, shown: Shown, proxies: Proxies) -> Mapping[str, str]:
    """Return the header that deletes the session cookie."""
    return _header(is_sealed(scope, shown, proxies), "", 0)


def begun(scope: Scope, shown: Shown, proxies: Proxies, value: str, life_s: int) -> Mapping[str, str]:
    """Return the header that sets the cookie of a log-in in progress."""
    sealed = is_sealed(scope, shown, proxies)
    secure = "; Secure" if sealed else ""
    return {"Set-Cookie": f"{_login_name(sealed)}={value}; Max-Age={life_s}; {_BEGUN_ATTRIBUTES}{secure}"}


def _login_name(sealed: bool) -> str:
    return f"__Host-{_BEGUN}" if sealed else _BEGUN


def _header(sealed: bool, value: str, life_s: int) -> Mapping[str, str]:
    secure = "; Secure" if sealed else ""
    return {"Set-Cookie": f"{_name(sealed)}={value}; Max-Age={life_s}; {_ATTRIBUTES}{secure}"}


def _name(sealed: bool) -> str:
    return SECURE_COOKIE if sealed else COOKIE
