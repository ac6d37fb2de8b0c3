"""Job files: text to job requests, with every problem of every job at once."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError


class BadJobFile(MesosGpuError):
    """The file does not hold jobs; nothing was sent (EX_DATAERR)."""

    exit_code, http_status = 65, 400


def read_jobs(text: str, *, name: str) -> list[Mapping[str, Any]]:
    """The job requests of a JSON or YAML text: one object, or a list of them. `name` is for messages.

    Raises:
        BadJobFile: It is neither, or a job has a problem; all are listed, each with its place.
    """
    value = _parse(text, name)
    jobs = value if isinstance(value, list) else [value]
    if not jobs:
        raise BadJobFile(f"{name} holds no job", remedy="write one job, or a list of jobs")
    prefixes = [f"/{i}" if isinstance(value, list) else "" for i in range(len(jobs))]
    found = [line for prefix, job in zip(prefixes, jobs, strict=True) for line in _problems(prefix, job)]
    if found:
        lines = "\n".join(f"  {line}" for line in found)
        raise BadJobFile(
            f"{name} was not submitted:\n{lines}", remedy="correct the file; docs/reference/rest.md"
        )
    return jobs


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as json_error:
        if name.endswith(".json"):
            raise BadJobFile(f"{name} is not JSON: {json_error}", remedy="correct the file") from json_error
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as err:
        where = getattr(err, "problem_mark", None)
        place = f" at line {where.line + 1}, column {where.column + 1}" if where else ""
        what = f"{name} is neither JSON nor YAML{place}: {getattr(err, 'problem', None) or err}"
        raise BadJobFile(what, remedy="correct the file") from err


def _problems(prefix: str, job: Any) -> list[str]:
    if not isinstance(job, dict):
        return [f"{prefix or '/'}: must be an object, got {_shown(job)}"]
    lines = [
        f"{prefix}/{field}: {reason}"
        for field, value in job.items()
        if (reason := _RULES[field](value) if field in _RULES else _unknown())
    ]
    if (job.get("command") is None) == (job.get("argv") is None):
        lines.append(f"{prefix or '/'}: exactly one of command and argv must be set")
    return lines


def _unknown() -> str:
    return f"unknown field; known are {', '.join(_RULES)}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def _rule(wanted: str, good: Callable[[Any], bool], *, optional: bool = False) -> Callable[[Any], str]:
    """A check that answers what is wrong, or nothing."""
    return lambda value: (
        "" if (optional and value is None) or good(value) else f"must be {wanted}, got {_shown(value)}"
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for pair in value.items() for x in pair)


_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_MAP: Final = _rule("an object of strings (put quotes around numbers)", _map)
_RULES: Final[dict[str, Callable[[Any], str]]] = {
    "name": _rule(
        "1 to 63 of a-z, 0-9, '.' and '-', with a letter or digit at both ends",
        lambda v: isinstance(v, str) and bool(_NAME.fullmatch(v)),
        optional=True,
    ),
    "command": _rule("a string that is not empty", lambda v: isinstance(v, str) and bool(v), optional=True),
    "argv": _rule("a list of strings, not empty", lambda v: _texts(v) and bool(v), optional=True),
    "cpus": _rule("a positive number", lambda v: _number(v) and v > 0),
    "mem_mib": _rule("a positive whole number", lambda v: _whole(v) and v > 0),
    "gpus": _rule("a whole number from 0", lambda v: _whole(v) and v >= 0),
    "gpu_model": _rule("a string or a list of strings", lambda v: isinstance(v, str) or _texts(v)),
    "env": _MAP,
    "user": _rule("a string", lambda v: isinstance(v, str), optional=True),
    "labels": _MAP,
    "max_attempts": _rule("a whole number from 1", lambda v: _whole(v) and v >= 1),
    "timeout_s": _rule("a positive number", lambda v: _number(v) and v > 0, optional=True),
    "kill_grace_s": _rule("a number from 0", lambda v: _number(v) and v >= 0),
}
