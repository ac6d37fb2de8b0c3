"""Labels of apps for a load balancer, as marathon-lb reads them. Pure.

Facts: marathon-lb's Longhelp.md and marathon_lb.py (mesosphere/marathon-lb, 1.x). Values of labels end up in the
configuration of a proxy, so a value in an unknown form is left out and reported. A label that limits access to a
service and is not understood keeps the whole service out of exports: without it the service would be open to all.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import HOST, Login, Mode
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.words import whole_of

T = TypeVar("T")
_BALANCES: Final = ("roundrobin", "static-rr", "leastconn", "first", "source", "random")
_LABEL: Final = re.compile(r"HAPROXY_(?:(\d+)_)?([A-Z_]+)")
_SAID_ELSEWHERE: Final = re.compile(r"HAPROXY_(DEPLOYMENT_[A-Z_]+|APP_ID|GROUP)")
_HONOURED: Final = ("GROUP", "PORT", "VHOST", "MODE", "BALANCE", "STICKY")
_LIMITS: Final = ("AUTH", "ENABLED", "PATH", "REDIRECT_TO_HTTPS")
#: Ignored labels; without them a service is open to the same clients.
_OPEN_WITHOUT: Final = (
    "BACKEND_HEALTHCHECK_PORT_INDEX", "BACKEND_HSTS_OPTIONS", "BACKEND_HTTP_HEALTHCHECK_OPTIONS",
    "BACKEND_SERVER_HTTP_HEALTHCHECK_OPTIONS", "BACKEND_SERVER_OPTIONS", "BACKEND_SERVER_TCP_HEALTHCHECK_OPTIONS",
    "BACKEND_STICKY_OPTIONS", "BACKEND_TCP_HEALTHCHECK_OPTIONS", "BACKEND_WEIGHT", "USE_HSTS",
)  # fmt: skip
_FLAGS: Final = {"true": True, "false": False}
_PATH: Final = re.compile(r"/[A-Za-z0-9._~!&()*+,;=:@%/-]*")
#: Realm, name, and a password as crypt(3) hashes it.
_LOGIN: Final = re.compile(
    r"(?P<realm>[A-Za-z0-9 _.-]{1,64}):(?P<user>[A-Za-z0-9_.@-]{1,64}):"
    r"(?P<password>\$[0-9a-z]{1,4}\$[./A-Za-z0-9$=]{8,128})"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the clients and requests of a service.

    Attributes:
        path: Prefix of the paths of requests; "" for any path.
        login: Name and password that a client needs; None if it needs none.
        https_only: Whether a request without TLS is redirected.
        unknown: Reason against an export of the service; "" if it may be exported.
    """

    path: str = ""
    login: Login | None = None
    https_only: bool = False
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Settings in an app's labels for one of its ports.

    Attributes:
        port: Port on which the load balancer listens; None without one.
        hosts: Names of virtual hosts.
        mode: Protocol of the service; None if neither labels nor checks give one.
        balance: Algorithm of the balancing; "" if not set.
        sticky: Whether clients stay with one server.
        enabled: Whether the app's tasks serve.
        limits: Limits on clients and requests.
        problems: Labels that are ignored, as messages.
    """

    port: int | None
    hosts: tuple[str, ...]
    mode: Mode | None
    balance: str
    sticky: bool
    enabled: bool
    limits: Limits
    problems: tuple[str, ...]


def limits_service(label: str) -> bool:
    """Return whether a label may limit access to a service."""
    match = _LABEL.fullmatch(label)
    return match is not None and match[1] is not None and match[2] not in (*_HONOURED, *_OPEN_WITHOUT)


def wishes_of(app: App, index: int) -> Wishes:
    """Read the settings in an app's labels for its port `index`."""
    bad, unknown = list[str](), list[str]()

    def value_of(word: str, good: Callable[[str], bool]) -> str:
        """Return the value of a label of the port; "" if it is missing or malformed, which is recorded."""
        label = f"HAPROXY_{index}_{word}"
        value = app.labels.get(label, "").strip()
        if not value or good(value):
            return value
        if word in _LIMITS:
            unknown.append(f"{app.id}: {label} {value!r} has no known form")
        else:
            bad.append(f"{app.id}: {label} {value!r} has no known form, and left out")
        return ""

    port = value_of("PORT", lambda text: whole_of(text) in range(1, 65536))
    hosts = value_of("VHOST", lambda text: all(HOST.fullmatch(host.strip()) for host in text.split(",")))
    mode = value_of("MODE", lambda text: text.lower() in ("http", "tcp")).lower()
    balance = value_of("BALANCE", _BALANCES.__contains__)
    sticky = value_of("STICKY", lambda text: text.lower() in _FLAGS)
    enabled = value_of("ENABLED", lambda text: text.lower() in _FLAGS)
    https_only = value_of("REDIRECT_TO_HTTPS", lambda text: text.lower() in _FLAGS)
    path = value_of("PATH", lambda text: _PATH.fullmatch(text) is not None)
    login = _LOGIN.fullmatch(value_of("AUTH", lambda text: _LOGIN.fullmatch(text) is not None))
    for label in app.labels:
        match = _LABEL.fullmatch(label)
        if match is None or (match[2] in (*_HONOURED, *_LIMITS) and match[1] is not None):
            continue
        if match[1] is not None and int(match[1]) == index and limits_service(label):
            unknown.append(f"{app.id}: {label} is not supported, and may limit access to the service")
        elif not _SAID_ELSEWHERE.fullmatch(label) and not limits_service(label):
            bad.append(f"{app.id}: {label} has no effect here")
    limits = Limits(
        "" if path == "/" else path,
        Login(**login.groupdict()) if login else None,
        _FLAGS.get(https_only.lower(), False),
        "; ".join(unknown),
    )
    is_http = bool(hosts) or _speaks_http(limits) or any(_checks(check, index) for check in app.health_checks)
    return Wishes(
        port=int(port) if port else _service_port(app, index),
        hosts=tuple(host.strip().lower() for host in hosts.split(",") if host),
        mode=Mode(mode) if mode else Mode.HTTP if is_http else None,
        balance=balance,
        sticky=_FLAGS.get(sticky.lower(), False),
        enabled=_FLAGS.get(enabled.lower(), True),
        limits=limits,
        problems=tuple(bad),
    )


def limits_of(wishes: Sequence[Wishes], mode: Mode) -> Limits:
    """Return the limits of a service of several apps: all of theirs, or a reason against its export.

    Args:
        wishes: Settings of each app for the port that serves.
        mode: Mode of the service.
    """
    paths = {wish.limits.path for wish in wishes} - {""}
    logins = {wish.limits.login for wish in wishes} - {None}
    unknown = [wish.limits.unknown for wish in wishes if wish.limits.unknown]
    if len(paths) > 1:
        unknown.append(f"its apps have several paths in HAPROXY_n_PATH: {', '.join(sorted(paths))}")
    if len(logins) > 1:
        unknown.append("its apps have several values in HAPROXY_n_AUTH")
    if wishes and not any(wish.enabled for wish in wishes):
        unknown.append("HAPROXY_n_ENABLED is false")
    limits = Limits(
        _only(paths) or "", _only(logins), any(wish.limits.https_only for wish in wishes), "; ".join(unknown)
    )
    if mode is Mode.TCP and _speaks_http(limits):
        unknown.append(
            "HAPROXY_n_AUTH, _PATH and _REDIRECT_TO_HTTPS need the mode http, and it has the mode tcp"
        )
        return Limits(unknown="; ".join(unknown))
    return limits


def _only(values: set[T]) -> T | None:
    """Return the only element of a set; None if it has none or several."""
    return next(iter(values)) if len(values) == 1 else None


def _speaks_http(limits: Limits) -> bool:
    """Return whether limits apply to HTTP requests only."""
    return bool(limits.path or limits.login or limits.https_only)


def _checks(check: HealthCheck, index: int) -> bool:
    """Return whether a health check uses HTTP on the port of that index."""
    return check.protocol.is_http and check.port_index == index


def _service_port(app: App, index: int) -> int | None:
    """Return the service port at an index; None if it is missing or 0."""
    return next(iter(app.service_ports[index : index + 1]), None) or None
