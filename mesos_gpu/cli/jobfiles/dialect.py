"""Job fields with units, such as `mem: 16GiB` and `timeout: 2h`, converted to the interface's names. Pure functions."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mesos_gpu.cli.types import mib_of, seconds_of
from mesos_gpu.model.jobs.fields import Field, Mib, Seconds
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.wire.checking import Problem, show
from mesos_gpu.wire.job_fields import CHECK_KNOWN

Reader = Callable[[str], float]
_CHECKS: Final = "health_checks"


def _percent(text: str) -> float:
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        raise ValueError(f"{text!r} is not a percentage; write 30 or 30%") from None


def _short(field: Field) -> tuple[str, Reader] | None:
    """Return a field's name without its unit and the parser of values with units; None for fields without a unit."""
    if isinstance(field.kind, Mib):
        return field.key.removesuffix("_mib"), mib_of
    if isinstance(field.kind, Seconds):
        return field.key.removesuffix("_s"), seconds_of
    return (field.key.removesuffix("_pct"), _percent) if field.key.endswith("_pct") else None


#: Names without units, with the interface's names and the parsers of their values.
SHORT: Final[Mapping[str, tuple[str, Reader]]] = {
    short[0]: (field.key, short[1])
    for field in FIELDS
    if (short := _short(field)) is not None and short[0] != field.key
}
_OF_CHECKS: Final[Mapping[str, tuple[str, Reader]]] = {
    key.removesuffix("_s"): (key, seconds_of) for key in CHECK_KNOWN if key.endswith("_s")
}


def as_interface(job: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem], dict[str, str]]:
    """Return a job with the interface's names and numbers, its problems, and for each changed JSON pointer the
    original.

    Problems are those of fields with units.
    """
    named, problems, places = _renamed(job, SHORT, "")
    checks = named.get(_CHECKS)
    if isinstance(checks, list):
        for i, check in enumerate(checks):
            if isinstance(check, dict):
                checks = list(checks)
                checks[i], of_check, inner = _renamed(check, _OF_CHECKS, f"/{_CHECKS}/{i}")
                problems += of_check
                places |= inner
        named[_CHECKS] = checks
    return named, problems, places


def _renamed(
    value: Mapping[str, Any], short: Mapping[str, tuple[str, Reader]], at: str
) -> tuple[dict[str, Any], list[Problem], dict[str, str]]:
    """Return an object with the interface's names, the problems, and the original pointers of renamed fields."""
    named = dict(value)
    problems: list[Problem] = []
    places: dict[str, str] = {}
    for name, (key, read) in short.items():
        if name not in value:
            continue
        del named[name]
        if value[name] is None:
            continue
        if value.get(key) is not None:
            problems.append(Problem(f"{at}/{name}", f"means {key}, which is also given: remove one of them"))
            continue
        places[f"{at}/{key}"] = f"{at}/{name}"
        try:
            named[key] = read(value[name]) if isinstance(value[name], str) else value[name]
        except ValueError as error:
            problems.append(Problem(f"{at}/{name}", str(error)))
    for name, (key, _) in short.items():
        if isinstance(value.get(key), str):
            del named[key]
            problems.append(
                Problem(
                    f"{at}/{key}",
                    f"must be a number, got {show(value[key])}: for a value with a unit use the field {name}",
                )
            )
    return named, problems, places
