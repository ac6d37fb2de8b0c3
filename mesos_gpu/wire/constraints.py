"""Constraints as in Marathon, `["rack", "GROUP_BY", "3"]`, and levels of a network fabric; pure functions."""

import re
from typing import Final

from mesos_gpu.model.jobs.constraint import Constraint, Operator, Topology
from mesos_gpu.model.jobs.fields import LEVEL, LEVEL_FORM
from mesos_gpu.model.jobs.pattern import problem_of

MAX_WORD: Final = 256
MAX_CONSTRAINTS: Final = 16  # constraints of a job or an app
_FORM: Final = "must be [field, operator] or [field, operator, value]"
_COUNT: Final = re.compile(r"[0-9]{1,9}")
#: Values that Marathon permits for IS: text or a number, no set.
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_/.-]*")
_UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")


def constraint_of(value: object) -> Constraint | str:
    """Return the constraint, or the problem as text. Numbers are converted to text; operators may have any case."""
    words = value if isinstance(value, list) else []
    if len(words) not in (2, 3) or not all(_is_word(word) for word in words):
        return f"{_FORM}, of strings up to {MAX_WORD} characters"
    field, name, *rest = map(str, words)
    if not field:
        return f"{_FORM}, but the field is empty: set hostname, @region, @zone or the name of an attribute"
    operator = Operator.__members__.get(name.upper())
    if operator is None:
        return f"has the unknown operator {name}; use one of {', '.join(Operator.__members__)}"
    problem = _problem(operator, rest[0] if rest else None)
    return problem or Constraint(field, operator, rest[0] if rest else "")


def topology_of(value: object) -> Topology | str:
    """Return the level of a request, `{"required": "rack"}` or `{"preferred": "rack"}`, or the problem as text."""
    given = {key: name for key, name in value.items() if name is not None} if isinstance(value, dict) else {}
    ((key, level),) = given.items() if len(given) == 1 else (("", ""),)
    if key not in ("required", "preferred"):
        return 'must be {"required": LEVEL} or {"preferred": LEVEL}'
    if not isinstance(level, str) or not LEVEL.fullmatch(level):
        return f"must have {LEVEL_FORM}"
    return Topology(level, key == "required")


def topology_to_json(topology: Topology) -> dict[str, str]:
    """Return a level in the form that `topology_of` parses."""
    return {topology.key: topology.level}


def _is_word(word: object) -> bool:
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        return False
    return len(str(word)) <= MAX_WORD and not _UNFIT.search(str(word))


def _problem(operator: Operator, value: str | None) -> str:
    """Return why a value is invalid for an operator; "" if it is valid."""
    match operator:
        case Operator.UNIQUE if value is not None:
            return "UNIQUE has no value; leave it out"
        case Operator.MAX_PER if not _is_count(value):
            return 'MAX_PER needs the number of jobs per value, 1 or more, as "2"'
        case Operator.GROUP_BY if value is not None and not _is_count(value):
            return 'GROUP_BY needs the number of values, 1 or more, as "3", or no value'
        case Operator.LIKE | Operator.UNLIKE:
            why = problem_of(value) if value else "the value is missing"
            return f"{operator.value} needs a regular expression, as rack-[1-3]: {why}" if why else ""
        case Operator.IS if not _PLAIN.fullmatch(value or ""):
            return "IS needs a text or number of a-z, A-Z, 0-9 and _/.-; use LIKE for others"
        case _:
            return ""


def _is_count(value: str | None) -> bool:
    return value is not None and bool(_COUNT.fullmatch(value)) and int(value) >= 1
