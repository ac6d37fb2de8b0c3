"""Services as a configuration of HAProxy 2.4 or later, without the operator's `global` section; pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mesos_gpu.model.apps.split import Backend, Mode

HOSTS_FRONTEND: Final = "mesos_gpu_hosts"
# Requests refused by a server go to another one (redispatch); servers with unknown host names count as down.
_HEAD: Final = """\
# Written by mesos-gpu; changes are lost.
defaults mesos_gpu
  timeout connect 3s
  timeout client 60s
  timeout server 60s
  timeout http-request 15s
  timeout tunnel 1h
  retries 3
  option redispatch
  default-server init-addr last,libc,none
"""
#: Idle clients keep their connections across a reload.
_HTTP: Final = "  mode http\n  option idle-close-on-response\n"


def render(backends: Sequence[Backend], *, http_port: int, sections: bool = True) -> str:
    """Return the text of a configuration file.

    Args:
        backends: Services; no two may have equal names, ports, or hosts with path. For those that are left out only the
            reason is written.
        http_port: Port of the frontend that selects services by host.
        sections: Whether defaults and frontends are included; else only backends.
    """
    parts, shown = [_problems(backends)], [backend for backend in backends if not backend.left_out]
    if sections:
        parts += [_HEAD, *map(_frontend, shown), _by_host(shown, http_port)]
    return "\n".join(part for part in (*parts, *map(_users, shown), *map(_backend, shown)) if part)


def _problems(backends: Iterable[Backend]) -> str:
    left_out = [f"{backend.name} is left out: {backend.left_out}" for backend in backends if backend.left_out]
    problems = [*left_out, *(problem for backend in backends for problem in backend.problems)]
    return "".join(f"# {_one_line(problem)}\n" for problem in problems)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _frontend(backend: Backend) -> str:
    if backend.port is None:
        return ""
    mode = _HTTP if backend.mode is Mode.HTTP else "  mode tcp\n"
    to = f"default_backend {backend.name}"
    if backend.path:
        to = f"use_backend {backend.name} if {_has_path(backend)}"
    return f"{_bind(backend.name, backend.port)}{mode}  {to}\n"


def _has_path(backend: Backend) -> str:
    return f"{{ path_beg {backend.path} }}"


def _bind(name: str, port: int) -> str:
    return f"frontend {name} from mesos_gpu\n  bind *:{port}\n"


def _by_host(backends: Iterable[Backend], port: int) -> str:
    sorted_out = [each for each in backends if each.hosts and each.mode is Mode.HTTP]
    rules = [
        f"  use_backend {each.name} if {{ req.hdr(host),field(1,:),lower -m str {' '.join(each.hosts)} }}"
        + (f" {_has_path(each)}" if each.path else "")
        for each in sorted(sorted_out, key=lambda each: -len(each.path))
    ]
    if not rules:
        return ""
    return _bind(HOSTS_FRONTEND, port) + _HTTP + "\n".join(rules) + "\n"


def _users(backend: Backend) -> str:
    """Return the section with name and password of a service; "" if it needs none."""
    if backend.login is None:
        return ""
    name = _users_of(backend)
    return f"userlist {name}\n  user {backend.login.user} password {backend.login.password}\n"


def _users_of(backend: Backend) -> str:
    return f"{backend.name}_users"


def _backend(backend: Backend) -> str:
    return "\n".join(_lines(backend)) + "\n"


def _lines(backend: Backend) -> Iterator[str]:
    """Yield the lines of the backend section of a service."""
    http = backend.mode is Mode.HTTP
    yield f"backend {backend.name} from mesos_gpu"
    yield f"  mode {backend.mode.value}"
    yield f"  balance {backend.balance}"
    if http:
        yield "  option forwardfor"
    if backend.https_only:
        yield "  http-request redirect scheme https code 301 unless { ssl_fc }"
    if backend.login is not None:
        needs = f"unless {{ http_auth({_users_of(backend)}) }}"
        yield f'  http-request auth realm "{backend.login.realm}" {needs}'
    if http and backend.sticky:
        yield "  cookie mesos_gpu_server insert indirect nocache httponly"
    for server in backend.servers:
        if server.problem:
            yield f"  # {_one_line(server.problem)}"
            continue
        cookie = f" cookie {server.task_id}" if http and backend.sticky else ""
        yield f"  server {server.task_id} {server.place} check weight {server.weight}{cookie}"
