"""Labels of apps for a load balancer, as marathon-lb reads them. Pure.

Facts: marathon-lb's Longhelp.md and marathon_lb.py (mesosphere/marathon-lb, 1.x). Values of labels end up in the
configuration of a proxy, so a value of another form is left out, and named. A label that limits who may use a service,
and that is not understood, keeps the whole service out of exports: without it the service would be open to all.
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
#: Of no effect; without them a service is open to the same clients.
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
    """Wishes of an app's labels for one of its ports; `problems`: those that are not met, for people."""

    port: int | None
    hosts: tuple[str, ...]
    mode: Mode | None
    balance: str
    sticky: bool
    enabled: bool
    limits: Limits
    problems: tuple[str, ...]


def limits_service(label: str) -> bool:
    """Whether a label may limit who uses a service."""
    match = _LABEL.fullmatch(label)
    return match is not None and match[1] is not None and match[2] not in (*_HONOURED, *_OPEN_WITHOUT)


def wishes_of(app: App, index: int) -> Wishes:
    """Read what an app's labels say of its port `index`."""
    bad, unknown = list[str](), list[str]()

    def said(word: str, good: Callable[[str], bool]) -> str:
        label = f"HAPROXY_{index}_{word}"
        value = app.labels.get(label, "").strip()
        if not value or good(value):
            return value
        if word in _LIMITS:
            unknown.append(f"{app.id}: {label} {value!r} is of no known form")
        else:
            bad.append(f"{app.id}: {label} {value!r} is of no known form, and left out")
        return ""

    port = said("PORT", lambda text: whole_of(text) in range(1, 65536))
    hosts = said("VHOST", lambda text: all(HOST.fullmatch(host.strip()) for host in text.split(",")))
    mode = said("MODE", lambda text: text.lower() in ("http", "tcp")).lower()
    balance = said("BALANCE", _BALANCES.__contains__)
    sticky = said("STICKY", lambda text: text.lower() in _FLAGS)
    enabled = said("ENABLED", lambda text: text.lower() in _FLAGS)
    https_only = said("REDIRECT_TO_HTTPS", lambda text: text.lower() in _FLAGS)
    path = said("PATH", lambda text: _PATH.fullmatch(text) is not None)
    login = _LOGIN.fullmatch(said("AUTH", lambda text: _LOGIN.fullmatch(text) is not None))
    for label in app.labels:
        match = _LABEL.fullmatch(label)
        if match is None or (match[2] in (*_HONOURED, *_LIMITS) and match[1] is not None):
            continue
        if match[1] is not None and int(match[1]) == index and limits_service(label):
            unknown.append(f"{app.id}: {label} is not known here, and may limit who uses the service")
        elif not _SAID_ELSEWHERE.fullmatch(label) and not limits_service(label):
            bad.append(f"{app.id}: {label} is of no effect here")
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
    """Return the limits of a service of several apps: all of theirs, or none that can be known.

    Args:
        wishes: Wishes of each app for the port that serves.
        mode: Mode of the service.
    """
    paths = {each.limits.path for each in wishes} - {""}
    logins = {each.limits.login for each in wishes} - {None}
    unknown = [each.limits.unknown for each in wishes if each.limits.unknown]
    if len(paths) > 1:
        unknown.append(f"its apps have several paths in HAPROXY_n_PATH: {', '.join(sorted(paths))}")
    if len(logins) > 1:
        unknown.append("its apps have several values in HAPROXY_n_AUTH")
    if wishes and not any(each.enabled for each in wishes):
        unknown.append("HAPROXY_n_ENABLED is false")
    limits = Limits(
        _only(paths) or "", _only(logins), any(each.limits.https_only for each in wishes), "; ".join(unknown)
    )
    if mode is Mode.TCP and _speaks_http(limits):
        unknown.append(
            "HAPROXY_n_AUTH, _PATH and _REDIRECT_TO_HTTPS need the mode http, and it has the mode tcp"
        )
        return Limits(unknown="; ".join(unknown))
    return limits


def _only(values: set[T]) -> T | None:
    return next(iter(values)) if len(values) == 1 else None


def _speaks_http(limits: Limits) -> bool:
    return bool(limits.path or limits.login or limits.https_only)


def _checks(check: HealthCheck, index: int) -> bool:
    return check.protocol.is_http and check.port_index == index


def _service_port(app: App, index: int) -> int | None:
    return next(iter(app.service_ports[index : index + 1]), None) or None
