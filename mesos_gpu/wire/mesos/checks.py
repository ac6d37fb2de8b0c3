"""Health checks as sent to executors, and the HTTP that checks use. Uses only the standard library.

Sources: RFC 9112, sections 2 to 4 (lines of a message); RFC 9110, section 15.2 (interim answers).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol, Protocol
from mesos_gpu.wire.body import parsed

MAX_HEAD: Final = 65536
MAX_INTERIM: Final = 64  # interim answers before the final one
_LINE: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: |\r?$)")
_BLANK: Final = re.compile(rb"\r?\n\r?\n")
_SWITCHED: Final = 101  # the only status 1xx that is final


def encode(checks: Sequence[HealthCheck]) -> str:
    """Encode checks as JSON; "" for none."""
    return json.dumps([_plain(check) for check in checks], separators=(",", ":")) if checks else ""


def _plain(check: HealthCheck) -> dict[str, object]:
    kinds = {"protocol": check.protocol.value, "ip_protocol": check.ip_protocol.value}
    return {**asdict(check), **kinds}


def decode(text: str) -> tuple[HealthCheck, ...]:
    """Decode health checks encoded by `encode`.

    Raises:
        ValueError: The text is not a list of health checks in this form.
    """
    entries = parsed(text) if text else []
    if not isinstance(entries, list):
        raise ValueError(f"not health checks: {text[:80]!r}")
    return tuple(_check(entry) for entry in entries)


def _check(entry: object) -> HealthCheck:
    names = {field.name for field in fields(HealthCheck)}
    if not isinstance(entry, dict) or set(entry) != names:
        raise ValueError(f"not a health check: {entry!r}")
    kinds = {"protocol": Protocol(entry["protocol"]), "ip_protocol": IpProtocol(entry["ip_protocol"])}
    return HealthCheck(**{**entry, **kinds})


def request(host: str, port: int, path: str | None) -> bytes:
    """Return a GET request for `path`, which may lack its first slash. Unsafe characters are percent-encoded."""
    target = f"/{(path or '').removeprefix('/')}"
    target = re.sub(r"[^!-~]", lambda unsafe: "".join(f"%{byte:02X}" for byte in unsafe[0].encode()), target)
    host = f"[{host}]" if ":" in host else host
    lines = (f"GET {target} HTTP/1.1", f"Host: {host}:{port}", "User-Agent: mesos-gpu", "Accept: */*")
    return "\r\n".join((*lines, "Connection: close", "", "")).encode()


def status_of(data: bytes) -> tuple[int | None, bool]:
    """Parse the begin of an HTTP response.

    Returns:
        The final status, None if it has not arrived yet; and whether interim responses (1xx) have arrived.

    Raises:
        ValueError: The data is not an HTTP/1 response.
    """
    interim = 0
    while data:
        line, ended, _ = data.partition(b"\n")
        match = _LINE.match(line) if ended else None
        if not match:
            if ended or not data.startswith(b"HTTP/"[: len(data)]) or len(data) > MAX_HEAD:
                raise ValueError(f"not an answer of HTTP: {line[:40]!r}")
            break
        status = int(match[1])
        if status >= 200 or status == _SWITCHED:
            return status, interim > 0
        interim += 1
        if interim > MAX_INTERIM:
            raise ValueError(f"more than {MAX_INTERIM} interim answers")
        blank = _BLANK.search(data)
        if not blank:
            if len(data) > MAX_HEAD:
                raise ValueError("the head of the answer has no end")
            break
        data = data[blank.end() :]
    return None, interim > 0
