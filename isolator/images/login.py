"""Logins for registries, from the file that `docker login` writes (config.json). Pure.

Each login names its registry. It is sent to that registry only: a job that names an image of another registry, by
mistake or on purpose, does not get it sent there.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from isolator.images.reference import registry_host
from mesos_gpu.wire.body import parsed

FORM: Final = (
    'a config.json as docker login writes it, {"auths": {"HOST": {"auth": "BASE64 OF USER:PASSWORD"}}}, with the '
    "credentials themselves"
)


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for one registry.

    Attributes:
        user: Name of the user.
        password: Password, or token that the registry accepts in its place.
        identity_token: OAuth2 refresh token, which is used in place of the password; empty without one.
    """

    user: str = field(repr=False)
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)

    def basic(self) -> str:
        """Return the value of the header Authorization for basic authentication (RFC 7617)."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class Logins:
    """Logins of one secret, by registry, or by registry and the first parts of repositories."""

    by_place: Mapping[str, Login] = field(repr=False)

    @classmethod
    def parse(cls, value: bytes) -> "Logins":
        """Read a config.json.

        Raises:
            ValueError: It has another form. The message has nothing of the value.
        """
        try:
            auths = parsed(value)["auths"]
            read = {_place(str(key)): _login(entry) for key, entry in auths.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"is not {FORM}") from None
        by_place = {place: login for place, login in read.items() if login is not None}
        if not by_place:
            raise ValueError(f"has no login; it must be {FORM}")
        return cls(by_place)

    def find(self, host: str, repository: str) -> Login | None:
        """Return the login for a repository: that of the longest matching place; None if no place matches.

        Args:
            host: HOST[:PORT] of the registry; empty for that of names without a host.
            repository: Path in the registry.
        """
        parts = [registry_host(host), *repository.split("/")]
        for count in range(len(parts), 0, -1):
            if login := self.by_place.get("/".join(parts[:count])):
                return login
        return None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Registries that have logins, in order."""
        return tuple(sorted({place.partition("/")[0] for place in self.by_place}))


def _place(key: str) -> str:
    """Return HOST[:PORT][/PATH] of a key, which may be a URL, as https://index.docker.io/v1/."""
    host, _, path = key.rpartition("://")[2].partition("/")
    path = path.strip("/")
    if not host:
        raise ValueError(key)
    return "/".join(filter(None, (registry_host(host), "" if path in ("v1", "v2") else path)))


def _login(entry: object) -> Login | None:
    """Return the login of an entry; None if the credentials are kept elsewhere, by a credential helper."""
    if not isinstance(entry, dict):
        raise TypeError
    token = entry.get("identitytoken") or ""
    user, password = entry.get("username") or "", entry.get("password") or ""
    if auth := entry.get("auth"):
        user, colon, password = _decoded(auth).partition(":")
        if not colon:
            raise ValueError
        password = password.rstrip("\0")  # some versions of Docker pad it
    if not all(isinstance(text, str) for text in (user, password, token)):
        raise TypeError
    return Login(user, password, token) if token or (user and password) else None


def _decoded(auth: object) -> str:
    if not isinstance(auth, str):
        raise TypeError
    try:
        return base64.b64decode(auth, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError from None
