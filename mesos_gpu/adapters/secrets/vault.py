"""Secrets in Vault's key-value store, versions 1 and 2, by its HTTP interface.

`team/hf#token` is the field `token` of the secret at `team/hf`; the default field is `value`. The token is in a file
that another program, such as Vault's agent, renews; it is read for each request, and never part of a message.

Sources: Vault's API documentation, "KV secrets engine" versions 1 and 2, and "Namespaces".
"""

import contextlib
import http.client
import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.addresses import is_loopback_host
from mesos_gpu.model.secret import LARGEST_SECRET, SOURCE

FIELD: Final = "value"  # field of a source that names none
_PAUSE_S, _ANSWER_S = 5.0, 10.0  # longest silence, and longest time for an answer as a whole
_LARGEST_ANSWER: Final = 8 * LARGEST_SECRET
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_PART: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """Settings for Vault. `ca_cert`: authorities of its certificate; None for those of the host."""

    url: str
    token_file: Path
    mount: str = "secret"
    version: int = 2
    namespace: str = ""
    ca_cert: Path | None = None


class Vault:
    """`SecretStore` in Vault. Thread-safe.

    Args:
        settings: Address, mount and credentials.
    """

    def __init__(self, settings: VaultSettings) -> None:
        self._settings = settings

    def see(self) -> None:
        """Check the settings, as for `SecretStore.see`; Vault itself need not answer yet."""
        parts = urlsplit(self._settings.url)
        if not _is_address(parts):
            raise _bad_setting("--vault-url must be https://HOST[:PORT]", "give only Vault's address")
        if parts.scheme == "http" and not is_loopback_host(parts.hostname or ""):
            raise _bad_setting("--vault-url is not https, so others could read its answers", "use https")
        for option, text in (("mount", self._settings.mount), ("namespace", self._settings.namespace)):
            if (option == "mount" or text) and not _PART.fullmatch(text):
                raise _bad_setting(
                    f"--vault-{option} must be a path without slashes at its ends", "for example: secret"
                )
        ca_cert = self._settings.ca_cert
        if ca_cert is not None and not os.access(ca_cert, os.R_OK):
            raise _bad_setting(
                f"--vault-cacert {ca_cert} cannot be read", "give a PEM file of Vault's authority"
            )
        try:
            self._token()
        except MesosGpuError as error:
            raise _bad_setting(error.what, error.remedy) from error

    def read(self, source: str) -> bytes:
        """Return the value of a secret, as for `SecretStore.read`."""
        if not SOURCE.fullmatch(source):
            raise NotFound(f"{source!r} is not the path of a secret", remedy="use the form team/hf#token")
        path, _, field = source.partition("#")
        data = self._data(self._answer(path), path)
        value = data.get(field or FIELD)
        if value is None:
            raise NotFound(
                f"the secret {path} in Vault has no field {field or FIELD}",
                remedy=f"use an existing field, such as {path}#token, or write this field",
            )
        if not isinstance(value, str) or len(value.encode()) > LARGEST_SECRET:
            raise Unavailable(
                f"the secret {source} in Vault is not a text of at most {LARGEST_SECRET} bytes",
                remedy="write it as a string; store larger data elsewhere",
            )
        return value.encode()

    def close(self) -> None:
        """Do nothing: each request has its own connection."""

    def _answer(self, path: str) -> bytes:
        """Request a secret, and return the body of the answer."""
        settings = self._settings
        middle = "data/" if settings.version == 2 else ""
        where = f"{urlsplit(settings.url).path.rstrip('/')}/v1/{settings.mount}/{middle}{path}"
        headers = {"X-Vault-Token": self._token(), "X-Vault-Request": "true", "Accept": "application/json"}
        if settings.namespace:
            headers["X-Vault-Namespace"] = settings.namespace
        try:
            status, body = _request(self._connection(), where, headers)
        except (OSError, http.client.HTTPException) as error:  # its text could contain the request
            raise _unavailable(f"cannot be reached: {type(error).__name__}") from None
        if status != 200:
            raise _refusal(status, f"{path} of its store {settings.mount}")
        if len(body) > _LARGEST_ANSWER:
            raise _unavailable("gave an answer that is too large")
        return body

    def _connection(self) -> http.client.HTTPConnection:
        """Return a connection without proxies and redirects."""
        parts, ca_cert = urlsplit(self._settings.url), self._settings.ca_cert
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=_PAUSE_S)
        context = ssl.create_default_context(cafile=str(ca_cert) if ca_cert else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return http.client.HTTPSConnection(host, parts.port, timeout=_PAUSE_S, context=context)

    def _data(self, body: bytes, path: str) -> dict[str, Any]:
        try:
            data = msgspec.json.decode(body)["data"]
            data = data["data"] if self._settings.version == 2 else data
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
            raise _unavailable("gave an invalid answer") from None
        if not isinstance(data, dict):  # the latest version is deleted
            raise NotFound(f"the secret {path} in Vault has no data", remedy="write it again")
        return data

    def _token(self) -> str:
        try:
            token = private.read_secret(self._settings.token_file, "token of Vault")
        except BadConfiguration as error:
            raise Unavailable(error.what, remedy=error.remedy) from error
        if not _TOKEN.fullmatch(token):
            raise Unavailable(
                f"{self._settings.token_file} has no token of Vault",
                remedy="write only the token to this file",
            )
        return token


def _is_address(parts: SplitResult) -> bool:
    """Return whether a URL is that of a server, without other parts."""
    with contextlib.suppress(ValueError):  # the port is invalid
        more = parts.query or parts.fragment or parts.username or parts.password
        return bool(parts.hostname and parts.scheme in ("http", "https") and parts.port != 0 and not more)
    return False


def _request(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Return status and body of an answer, at most `_LARGEST_ANSWER + 1` bytes of it, within `_ANSWER_S`.

    Raises:
        OSError, HTTPException: There is no complete answer.
    """
    try:
        connection.connect()
        assert connection.sock is not None
        watch = threading.Timer(_ANSWER_S, _shut_down, [connection.sock])
        watch.daemon = True
        watch.start()
        try:
            connection.request("GET", path, headers=dict(headers))
            with connection.getresponse() as response:  # closed here, as it may not be read to its end
                return response.status, response.read(_LARGEST_ANSWER + 1)
        finally:
            watch.cancel()
    finally:
        connection.close()


def _shut_down(connected: socket.socket) -> None:
    """Shut down a connection at its deadline; it may have ended already."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _refusal(status: int, secret: str) -> MesosGpuError:
    if status == 404:
        return NotFound(
            f"Vault has no secret {secret}",
            remedy="write it, or use another secret; check --vault-mount and --vault-kv",
        )
    if status == 403:
        return Unavailable(
            f"Vault does not let the scheduler read the secret {secret}: its token has expired, or lacks the right",
            remedy="renew the token, or check its policy and --vault-mount",
        )
    if 300 <= status < 400:
        return _unavailable("redirects to another server, to which the token is not sent")
    return _unavailable("is sealed, or not ready" if status == 503 else f"answered {status}")


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"Vault {why}", remedy="check that it runs and is unsealed; check --vault-url")


def _bad_setting(what: str, remedy: str) -> BadConfiguration:
    return BadConfiguration(what, remedy=remedy)
