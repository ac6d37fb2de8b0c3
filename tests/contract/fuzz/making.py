"""Requests that nobody meant: over every route, with every verb, from what is right to what is not even JSON."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from starlette.routing import Route

from mesos_gpu.api import openapi

VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get")
JSON: Final = (b"content-type", b"application/json")
OCTETS: Final = (b"content-type", b"application/octet-stream")
FORM: Final = (b"content-type", b"application/x-www-form-urlencoded")
TEXTS: Final = (
    "", " ", "a", "/", "..", "../../etc/passwd", "..\\x", "%2e%2e%2f", "%00", "\0", "\x1b[31mred\x1b[0m", "\r\nX: y",
    "\u202eevil", "é", "日本", "x" * 300, "*", "?", "#", ";", "&", "'; DROP TABLE jobs; --", "${jndi:x}", "{{7*7}}",
    "<script>alert(1)</script>", "-1", "0", "1", "1e999", "NaN", "Infinity", "9" * 400, "0x10", "1_000", "\u0661",
    "true", "null", "None", "2015-02-11T09:31:50.021Z", "localhost", "169.254.169.254", "http://[::1", "file:///etc/x",
)  # fmt: skip
NUMBERS: Final = (
    -1,
    0,
    1,
    2,
    0.5,
    -0.0,
    1.5,
    1e-9,
    1e308,
    -1e308,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**99,
    65536,
)
RAW: Final = (
    b"", b" ", b"null", b"[]", b"{}", b"1", b'"x"', b"{", b"[", b"\xff", b"\xef\xbb\xbf{}", b"NaN", b'{"a":1,"a":2}',
    b"[" * 5000, b'{"a":' * 300, b'{"a":"\\ud800"}', b'{"id":"\\u0000"}', b'{"cpus":1e999}', b"1" * 5000,
    b'{"gpus":' + b"9" * 400 + b"}", b'{"command":"' + b"x" * 200_000 + b'"}', b"{}" * 100, b"\0" * 100, b"a=b&c=d",
    b"name=boss&password=x", b"name=%ff&password=%00", b"name=" + b"x" * 70_000,
)  # fmt: skip
KNOWN: Final = (
    "timeout_s",
    "after_version",
    "force",
    "dryRun",
    "embed",
    "by",
    "limit",
    "show_env",
    "event_type",
    "x",
)
PARTS: Final = (
    "kept",
    "other",
    "shop",
    "db",
    "*",
    "..",
    "",
    "tasks",
    "versions",
    "restart",
    "delay",
    "//",
    "kept.1234",
    "%2F",
)
UPLOADS: Final = "/v1/uploads/{sha256}"
#: What is sent along with jobs, by its digest: a name that others know, too.
ARCHIVES: Final = {
    hashlib.sha256(data).hexdigest(): data for data in (b"code", b"more code" * 40, b"\0" * 5000)
}
APP: Final[Mapping[str, Any]] = {
    "id": "/kept", "cmd": "sleep 1", "cpus": 0.1, "mem": 32, "instances": 0, "env": {"A": "b"}, "labels": {"a": "b"},
    "constraints": [["hostname", "UNIQUE"]], "upgradeStrategy": {"minimumHealthCapacity": 1}, "backoffFactor": 1.2,
    "healthChecks": [{"protocol": "MESOS_HTTP", "path": "/", "portIndex": 0}], "portDefinitions": [{"port": 0}],
    "gpus": 1,
}  # fmt: skip
OF_V2: Final[tuple[Any, ...]] = (
    APP, {**APP, "id": "/other/a"},
    {"id": "new", "cmd": "true", "instances": 0}, [APP], {"instances": 1}, {"apps": [APP], "groups": []},
    {"id": "/shop", "groups": [{"id": "db", "apps": [{**APP, "id": "one"}]}]}, {"scaleBy": 2}, {"ids": ["kept.1"]},
    {"version": "2015-02-11T09:31:50.021Z"},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, in the pieces that it comes in.

    Attributes:
        ends: Whether its client stays until its body is whole.
    """

    verb: str
    target: str  # path and query, encoded
    headers: tuple[tuple[bytes, bytes], ...]
    chunks: tuple[bytes, ...]
    ends: bool = True

    def __str__(self) -> str:
        body = b"".join(self.chunks)
        return (
            f"{self.verb} {self.target[:300]} {self.headers} {body[:300]!r} ({len(body)} bytes, {self.ends=})"
        )


@dataclass(slots=True)
class Maker:
    """Makes them, from a seed.

    Attributes:
        ids: What is there, by the first two parts of paths: "/v1/jobs" has ids of jobs.
    """

    chance: random.Random
    routes: Sequence[Route]
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def make(self, name: str = "") -> Asked:
        """Make one that `name` sends; "": somebody without one."""
        route = self.chance.choice(self.routes)
        if not {"POST", "PUT", "PATCH", "DELETE"} & (route.methods or set()):
            route = self.chance.choice(self.routes)  # changes are tried more often
        verbs = sorted(route.methods or ())
        verb = self.chance.choice(verbs) if verbs and self.often(0.92) else self.chance.choice(VERBS)
        chunks = self._chunks(verb, route.path)
        ends = not chunks or self.often(0.99)
        return Asked(
            verb,
            self._path(route.path) + self._query(verb, route.path),
            self._headers(name, chunks, OCTETS if route.path == UPLOADS else JSON),
            chunks,
            ends,
        )

    def often(self, part: float) -> bool:
        """Whether something of that probability is so."""
        return self.chance.random() < part

    def _path(self, template: str) -> str:
        there = self.ids.get("/".join(template.split("/")[:3]), ())
        steps = []
        for step in template.split("/"):
            if step == "{path:path}":
                steps += [self.chance.choice(PARTS) for _ in range(self.chance.randint(0, 4))]
            elif step.startswith("{"):
                known = there and self.often(0.7)
                steps.append(
                    quote(self.chance.choice(there if known else TEXTS), safe=self.chance.choice(["", "/"]))
                )
            else:
                steps.append(step)
        path = "/".join(steps) or "/"
        return (
            path + self.chance.choice(["/", "//", "/.", "%00", ";a", "/%2e%2e"]) if self.often(0.03) else path
        )

    def _query(self, verb: str, template: str) -> str:
        described = openapi.document()["paths"].get(template, {}).get(verb.lower(), {}).get("parameters", ())
        names = [each["name"] for each in described if each["in"] == "query"] + [*KNOWN]
        fields = []
        count = 120 if self.often(0.01) else self.chance.choice((0, 0, 0, 0, 0, 1, 1, 2, 4))
        for _ in range(count):
            value = self.chance.choice(TEXTS) if self.often(0.6) else str(self.chance.choice(NUMBERS))
            fields.append((self.chance.choice(names), value))
        if verb in ("PATCH", "DELETE") or any(name == "after_version" for name, _ in fields):
            # Nobody waits for a minute.
            fields = [each for each in fields if each[0] != "timeout_s"] + [("timeout_s", "0.01")]
        if template == UPLOADS and self.often(0.7):
            sizes = [len(each) for each in ARCHIVES.values()]
            fields = [
                ("offset", str(self.chance.choice((0, 0, 0, 2, *sizes)))),
                ("size", str(self.chance.choice(sizes))),
            ]
        if not fields:
            return ""
        safe = self.chance.choice(["", "/:;'*()"])
        return "?" + "&".join(f"{quote(name, safe=safe)}={quote(value, safe=safe)}" for name, value in fields)

    def _headers(
        self, name: str, chunks: tuple[bytes, ...], kind: tuple[bytes, bytes]
    ) -> tuple[tuple[bytes, bytes], ...]:
        host = (
            b"localhost"
            if self.often(0.97)
            else self.chance.choice((b"evil.example", b"", b"localhost:0x", b"[::1"))
        )
        headers = [(b"host", host)]
        if name:
            headers.append((b"x-name", name.encode()))
        if chunks:
            size = sum(map(len, chunks))
            headers.append(
                (b"content-length", b"%d" % size) if self.often(0.7) else (b"transfer-encoding", b"chunked")
            )
            headers += self.chance.choices(([kind], [FORM], []), (0.94, 0.04, 0.02))[0]
        more = (
            (b"accept", b"text/event-stream"), (b"accept", b"text/plain"), (b"accept", b"\xff"), (b"origin", b"null"),
            (b"origin", b"http://localhost"), (b"sec-fetch-site", b"cross-site"), (b"x-forwarded-for", b"1.2.3.4"),
            (b"cookie", b"session=\xff; a=b; " + b"x" * 200), (b"host", b"evil"), (b"content-type", b"text/plain"),
            (b"x-request-id", b"a\x1b[31m"), (b"x-request-id", b"x" * 500), (b"if-match", b'"1"'), (b"range", b"bytes"),
            (b"authorization", b"Bearer eyJhbGciOiJub25lIn0.e30."), (b"authorization", b"Basic \xff\xfe"),
            (b"accept-encoding", b"gzip"), (b"expect", b"100-continue"), (b"x-http-method-override", b"DELETE"),
        )  # fmt: skip
        headers += [self.chance.choice(more) for _ in range(self.chance.choice((0, 0, 0, 0, 0, 1, 3)))]
        return tuple(headers)

    # --- bodies

    def _chunks(self, verb: str, template: str) -> tuple[bytes, ...]:
        if verb in ("GET", "HEAD", "OPTIONS", "DELETE") and self.often(0.9):
            return ()
        body = self._body(verb, template)
        if not body or self.often(0.7):
            return (body,) if body else ()
        cuts = sorted(self.chance.randint(0, len(body)) for _ in range(3))
        return tuple(body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True))

    def _body(self, verb: str, template: str) -> bytes:
        if self.often(0.06):
            return self.chance.choice(RAW)
        if template == UPLOADS:
            data = self.chance.choice([*ARCHIVES.values()])
            return data[self.chance.choice((0, 0, 0, 2)) : self.chance.choice((3, None, None, None))]
        value = deepcopy(self.chance.choice(self._right(verb, template)))
        if template == "/v1/jobs" and isinstance(value, dict) and self.often(0.7):
            value |= {"queue": self.chance.choice(("research", "other")), "user": "nobody"}
        for _ in range(self.chance.choice((0, 0, 0, 1, 1, 2, 5))):
            value = self._spoilt(value)
        body = json.dumps(value, ensure_ascii=self.often(0.5)).encode("utf-8", "surrogatepass")
        if self.often(0.03):
            at = self.chance.randint(0, len(body))
            return body[:at] + self.chance.randbytes(self.chance.randint(0, 4)) + body[at + 1 :]
        return body

    def _right(self, verb: str, template: str) -> Sequence[Any]:
        """What keeps to the interface."""
        operation = openapi.OPERATIONS.get((verb, template))
        if operation is None:
            return OF_V2
        return [*operation.examples.values()] or [operation.example or {}]

    def _spoilt(self, value: Any) -> Any:
        """Replace, add or take away something, somewhere."""
        if isinstance(value, dict) and value and self.often(0.75):
            key = self.chance.choice([*value])
            choice = self.chance.random()
            if choice < 0.15:
                del value[key]
            elif choice < 0.3:
                value[self.chance.choice(TEXTS)] = self._odd()
            else:
                value[key] = self._spoilt(value[key])
            return value
        if isinstance(value, list) and value and self.often(0.75):
            at = self.chance.randrange(len(value))
            value[at] = self._spoilt(value[at])
            return value * self.chance.choice((1, 1, 1, 50)) if len(value) < 100 else value
        return self._odd()

    def _odd(self, depth: int = 3) -> Any:
        choice = self.chance.random()
        if choice < 0.35:
            return self.chance.choice(NUMBERS)
        if choice < 0.7 or not depth:
            return self.chance.choice(TEXTS)
        if choice < 0.8:
            return self.chance.choice((None, True, False))
        if choice < 0.9:
            return [self._odd(depth - 1) for _ in range(self.chance.randint(0, 3))]
        return {self.chance.choice(TEXTS): self._odd(depth - 1) for _ in range(self.chance.randint(0, 3))}
