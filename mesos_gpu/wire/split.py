"""Parsing and checking of requests that create services, into a `TrafficSplit` or all problems; pure functions."""

import re
from typing import Any, Final

from mesos_gpu.model.apps.split import HOST, Mode, TrafficSplit
from mesos_gpu.wire.checking import Problem, object_of, show
from mesos_gpu.wire.marathon.paths import absolute, problem_of

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MAX_APPS: Final = 16
MAX_WEIGHT: Final = 1000
MAX_HOSTS: Final = 32
_KNOWN: Final = ("apps", "port_index", "port", "hosts", "mode")


def decode(name: str, body: bytes) -> TrafficSplit | list[Problem]:
    """Parse the body of a request for the service `name`; return the service, or all problems.

    Raises:
        BadJson: The body is not a JSON object.
    """
    value = object_of(body)
    problems = [
        Problem(_pointer(key), f"unknown field; known fields are {', '.join(_KNOWN)}")
        for key in value
        if key not in _KNOWN
    ]
    if not NAME.fullmatch(name):
        problems.append(
            Problem(
                "/name",
                f"must be 1 to 63 of a-z, 0-9 and -, not beginning or ending with -, got {show(name)}",
            )
        )
    weights = _weights(value.get("apps"), problems)
    port_index = _whole(value, "port_index", 0, 99, problems)
    port = _whole(value, "port", 1, 65535, problems)
    hosts = _hosts(value.get("hosts"), problems)
    mode = value.get("mode")
    if mode not in (None, "http", "tcp"):
        problems.append(Problem("/mode", f"must be http, tcp or null, got {show(mode)}"))
    if problems:
        return problems
    return TrafficSplit(name, weights, port_index or 0, port, hosts, Mode(mode) if mode else None)


def encode(split: TrafficSplit) -> dict[str, Any]:
    """Return a service in the form that `decode` parses."""
    return {
        "apps": dict(split.weights),
        "port_index": split.port_index,
        "port": split.port,
        "hosts": list(split.hosts),
        "mode": split.mode.value if split.mode else None,
    }


def place_of(app_id: str) -> str:
    """Return the JSON pointer of an app in a request."""
    return _pointer("apps", app_id)


def _pointer(*keys: str) -> str:
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def _weights(value: Any, problems: list[Problem]) -> dict[str, int]:
    """Parse the weights of apps; add problems to `problems`."""
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_APPS:
        why = f"must be an object of 1 to {MAX_APPS} app ids and their weights, got {show(value)}"
        problems.append(Problem("/apps", why))
        return {}
    weights: dict[str, int] = {}
    for key, weight in value.items():
        id = absolute(key)
        wrong = problem_of(id) or (
            "it is the root" if id == "/" else "it appears twice" if id in weights else ""
        )
        if wrong:
            problems.append(Problem(_pointer("apps", key), f"is not a valid app id: {wrong}"))
        if not _is_whole(weight) or not 0 <= weight <= MAX_WEIGHT:
            why = f"must be a whole number from 0 to {MAX_WEIGHT}, got {show(weight)}"
            problems.append(Problem(_pointer("apps", key), why))
        else:
            weights[id] = int(weight)
    if len(weights) == len(value) and not any(weights.values()):
        problems.append(Problem("/apps", "must have an app with a weight above 0"))
    return weights


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: dict[str, Any], name: str, least: int, most: int, problems: list[Problem]) -> int | None:
    number = value.get(name)
    if number is None or (_is_whole(number) and least <= number <= most):
        return number
    problems.append(Problem(f"/{name}", f"must be null or from {least} to {most}, got {show(number)}"))
    return None


def _hosts(value: Any, problems: list[Problem]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_HOSTS:
        problems.append(
            Problem("/hosts", f"must be a list of at most {MAX_HOSTS} host names, got {show(value)}")
        )
        return ()
    for index, host in enumerate(value):
        if not isinstance(host, str) or not HOST.fullmatch(host):
            problems.append(Problem(f"/hosts/{index}", f"must be a host name, got {show(host)}"))
    return tuple(dict.fromkeys(str(host).lower() for host in value))
