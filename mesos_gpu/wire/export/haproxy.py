"""Services as a configuration of HAProxy 2.4 or later, without a `global` section: that is the operator's. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mesos_gpu.model.apps.split import Backend, Mode

HOSTS_FRONTEND: Final = "mesos_gpu_hosts"
# A connection that a server does not take goes to another one; a host whose name is not known is down.
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
_HTTP: Final = "  mode http\n  option idle-close-on-response\n"  # a client that is idle outlives a reload


def render(backends: Sequence[Backend], *, http_port: int, sections: bool = True) -> str:
    """The text of a configuration file.

    Args:
        backends: No two share a name, port or host.
        http_port: Where requests are sorted by their host.
        sections: Whether defaults and frontends come first; else there are backends only.
    """
    parts = [_problems(backends)]
    if sections:
        parts += [_HEAD, *map(_frontend, backends), _by_host(backends, http_port)]
    return "\n".join(part for part in (*parts, *map(_backend, backends)) if part)


def _problems(backends: Iterable[Backend]) -> str:
    return "".join(f"# {_one_line(problem)}\n" for each in backends for problem in each.problems)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _frontend(backend: Backend) -> str:
    if backend.port is None:
        return ""
    mode = _HTTP if backend.mode is Mode.HTTP else "  mode tcp\n"
    return f"{_bind(backend.name, backend.port)}{mode}  default_backend {backend.name}\n"


def _bind(name: str, port: int) -> str:
    return f"frontend {name} from mesos_gpu\n  bind *:{port}\n"


def _by_host(backends: Iterable[Backend], port: int) -> str:
    rules = [
        f"  use_backend {each.name} if {{ req.hdr(host),field(1,:),lower -m str {' '.join(each.hosts)} }}"
        for each in backends
        if each.hosts and each.mode is Mode.HTTP
    ]
    if not rules:
        return ""
    return _bind(HOSTS_FRONTEND, port) + _HTTP + "\n".join(rules) + "\n"


def _backend(backend: Backend) -> str:
    return "\n".join(_lines(backend)) + "\n"


def _lines(backend: Backend) -> Iterator[str]:
    http = backend.mode is Mode.HTTP
    yield f"backend {backend.name} from mesos_gpu"
    yield f"  mode {backend.mode.value}"
    yield f"  balance {backend.balance}"
    if http:
        yield "  option forwardfor"
    if http and backend.sticky:
        yield "  cookie mesos_gpu_server insert indirect nocache httponly"
    for server in backend.servers:
        if server.problem:
            yield f"  # {_one_line(server.problem)}"
            continue
        cookie = f" cookie {server.task_id}" if http and backend.sticky else ""
        yield f"  server {server.task_id} {server.place} check weight {server.weight}{cookie}"
