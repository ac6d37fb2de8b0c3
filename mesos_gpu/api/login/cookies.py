"""Cookies: of a session, and of a login at an issuer that has begun; how they are read, set and taken back."""

from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.api.login.sessions import COOKIE, SECURE_COOKIE

_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Strict"
_BEGUN: Final = "mesos_gpu_login"
#: It comes back with the issuer's answer, which another site leads to: with links alone, never with forms or scripts.
_BEGUN_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Lax"


def is_sealed(scope: Scope, shown: Shown, proxies: Proxies) -> bool:
    """Whether the browser speaks TLS: to us, or to a trusted proxy that says so."""
    if scope.get("scheme") == "https":
        return True
    said = shown.headers.get("x-forwarded-proto", ())
    return list(said) == ["https"] and proxies.are_behind(shown.peer_address, shown.extensions)


def read(scope: Scope, shown: Shown, proxies: Proxies) -> str | None:
    """The value of the cookie; None: there is none.

    Raises:
        WrongProof: There are several: another host of the same domain may have set one of them.
    """
    return _value(shown, _name(is_sealed(scope, shown, proxies)))


def begun_by(scope: Scope, shown: Shown, proxies: Proxies) -> str | None:
    """What a login that has begun in this browser left there; None: nothing.

    Raises:
        WrongProof: There are several cookies.
    """
    return _value(shown, _begun_name(is_sealed(scope, shown, proxies)))


def _value(shown: Shown, name: str) -> str | None:
    pairs = [
        each.strip().partition("=")
        for header in shown.headers.get("cookie", ())
        for each in header.split(";")
    ]
    values = [value for key, _, value in pairs if key == name]
    if len(values) > 1:
        raise WrongProof(f"there are several cookies {name}", guessed=False, remedy="log in again")
    return values[0] if values else None


def given(scope: Scope, shown: Shown, proxies: Proxies, value: str, life_s: float) -> Mapping[str, str]:
    """The header that gives a browser the cookie for so long."""
    return _header(is_sealed(scope, shown, proxies), value, int(life_s))


def forgotten(scope: Scope, shown: Shown, proxies: Proxies) -> Mapping[str, str]:
    """The header that takes it back."""
    return _header(is_sealed(scope, shown, proxies), "", 0)


def begun(scope: Scope, shown: Shown, proxies: Proxies, value: str, life_s: int) -> Mapping[str, str]:
    """The header that leaves something in the browser while a login goes on."""
    sealed = is_sealed(scope, shown, proxies)
    secure = "; Secure" if sealed else ""
    return {"Set-Cookie": f"{_begun_name(sealed)}={value}; Max-Age={life_s}; {_BEGUN_ATTRIBUTES}{secure}"}


def _begun_name(sealed: bool) -> str:
    return f"__Host-{_BEGUN}" if sealed else _BEGUN


def _header(sealed: bool, value: str, life_s: int) -> Mapping[str, str]:
    secure = "; Secure" if sealed else ""
    return {"Set-Cookie": f"{_name(sealed)}={value}; Max-Age={life_s}; {_ATTRIBUTES}{secure}"}


def _name(sealed: bool) -> str:
    return SECURE_COOKIE if sealed else COOKIE
