"""Templates: definitions of apps and groups for Marathon that declare which of their values should be changed.

A template is a valid definition with an additional object `template`, which Marathon ignores. A parameter has the
places of its value as JSON pointers (RFC 6901); its default is the value there. docs/templates.md has the format.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mesos_gpu.errors import Damaged, MesosGpuError
from mesos_gpu.model.apps.app import Group
from mesos_gpu.wire.checking import Problem, escaped
from mesos_gpu.wire.marathon.app import app_of
from mesos_gpu.wire.marathon.group import group_of
from mesos_gpu.wire.marathon.problems import Problems

KEY: Final = "template"
_MAX_NUMBER: Final = 18  # characters; longer numbers are not exact in JSON


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of given values.

    Attributes:
        parameters: Names of parameters whose values cause the problem; empty if none does.
        place: Place in the definition in Marathon's form; "" for none.
    """

    parameters: tuple[str, ...]
    reason: str
    place: str = ""

    def line(self, values: Mapping[str, str]) -> str:
        """Return the problem as text with the given values."""
        given = [f"{name}={values[name]}" if values.get(name) else name for name in self.parameters]
        where = " ".join((*given, *([f"({self.place})"] if self.place else ())))
        return f"{where}: {self.reason}" if where else self.reason

    def problems(self, path: str) -> list[Problem]:
        """Return a problem for each parameter, whose value is in an object at the JSON pointer `path`."""
        if not self.parameters:
            return [Problem(path, f"{self.place}: {self.reason}" if self.place else self.reason)]
        return [Problem(f"{path}/{escaped(name)}", self.reason) for name in self.parameters]


class WrongValues(MesosGpuError):
    """Error of values that the template lacks, or with which it is not valid; it has all problems.

    Args:
        what: Message with all problems.
        remedy: Advice to the user.
        faults: The single problems.
    """

    exit_code, http_status = 2, 400

    def __init__(self, what: str, *, remedy: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(what, remedy=remedy)
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A changeable value. `kind` is "string", "integer", "number" or "list" (of strings)."""

    name: str
    kind: str
    paths: tuple[str, ...]  # JSON pointers, at least one
    description: str
    required: bool  # whether the value in the file is only an example, such as a host name
    secret: bool  # whether forms and messages hide it
    default: Any  # None if the file has no value


@dataclass(frozen=True, slots=True)
class Template:
    """A template. `document` is the definition without the object `template`."""

    name: str
    about: str
    notes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    document: Mapping[str, Any]

    @property
    def is_group(self) -> bool:
        """Whether it is for /v2/groups, not for /v2/apps."""
        return "apps" in self.document or "groups" in self.document

    @property
    def kind(self) -> str:
        """Kind of definition: "group" or "app"."""
        return "group" if self.is_group else "app"

    @property
    def route(self) -> str:
        """Path to which the rendered definition is to be sent (POST)."""
        return "/v2/groups" if self.is_group else "/v2/apps"


class _Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: list[str]
    description: str
    type: str = "string"
    required: bool = False
    secret: bool = False


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    notes: list[str] = []
    parameters: dict[str, _Parameter] = {}


def template_of(name: str, body: bytes) -> Template:
    """Parse the file of a template.

    Raises:
        Damaged: The file is not JSON, or its object `template` is invalid.
    """
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
        about = msgspec.convert(document.pop(KEY, None), _About)
        parameters = tuple(
            _parameter(key, parameter, document) for key, parameter in about.parameters.items()
        )
    except (ValueError, LookupError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(f"template {name}: {error}", remedy="docs/templates.md has the format") from None
    return Template(name, about.about, tuple(about.notes), parameters, document)


def render(template: Template, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition with values, given by parameter name, in their places.

    Raises:
        WrongValues: A value is unknown, has a wrong type or is missing, or the result is not valid.
    """
    parameters = {parameter.name: parameter for parameter in template.parameters}
    wrong = [
        Fault((name,), f"there is no parameter {name}; leave it out")
        for name in values
        if name not in parameters
    ]
    document = deepcopy(dict(template.document))
    for parameter in template.parameters:
        if parameter.required and not values.get(parameter.name):
            wrong.append(Fault((parameter.name,), f"is missing: {parameter.description}"))
        elif parameter.name in values:
            wrong += _set(document, parameter, values[parameter.name])
    wrong += _invalid(template, document, values)
    if wrong:
        shown = {
            name: "***" if name in parameters and parameters[name].secret else text
            for name, text in values.items()
        }
        lines = (f"  {fault.line(shown)}" for fault in wrong)
        what = "\n".join((f"template {template.name} cannot be rendered:", *lines))
        remedy = f"`mesos-gpu template show {template.name}` lists the parameters"
        raise WrongValues(what, remedy=remedy, faults=wrong)
    return document


def summary_of(template: Template) -> dict[str, Any]:
    """Return a template as JSON, without its parameters."""
    return {
        "name": template.name,
        "kind": template.kind,
        "about": template.about,
        "notes": list(template.notes),
        "route": template.route,
    }


def described(template: Template) -> dict[str, Any]:
    """Return a template as JSON with its parameters, without its definition."""
    parameters = {parameter.name: _parameter_json(parameter) for parameter in template.parameters}
    return {**summary_of(template), "parameters": parameters}


def _parameter_json(each: Parameter) -> dict[str, Any]:
    return {
        "type": each.kind,
        "default": None if each.required else each.default,
        "required": each.required,
        "secret": each.secret,
        "example": each.default if each.required else None,
        "description": each.description,
        "paths": list(each.paths),
    }


def _set(document: dict[str, Any], parameter: Parameter, text: str) -> list[Fault]:
    """Put a value in all its places; return the problem if it is invalid."""
    try:
        value = KINDS[parameter.kind](text)
    except ValueError as error:
        return [Fault((parameter.name,), str(error))]
    for path in parameter.paths:
        _put(document, path, value, text)
    return []


def _parameter(name: str, declaration: _Parameter, document: dict[str, Any]) -> Parameter:
    """Return a declared parameter with the default in its places."""
    if declaration.type not in KINDS:
        raise ValueError(f"parameter {name}: type must be one of {', '.join(KINDS)}")
    if not declaration.paths or not all(path.startswith("/") for path in declaration.paths):
        raise ValueError(
            f"parameter {name}: paths must be JSON pointers, at least one, as /container/docker/image"
        )
    default, *others = (_get(document, path) for path in declaration.paths)
    if any(str(other) != str(default) for other in others):
        raise ValueError(f"parameter {name}: its places must have equal values")
    if declaration.required and default is None:
        raise ValueError(
            f"parameter {name}: must have an example in its place, so that the file is valid without changes"
        )
    if declaration.secret and (declaration.type != "string" or default is not None):
        raise ValueError(f"parameter {name}: a secret must have type string, and no value in the file")
    return Parameter(
        name,
        declaration.type,
        tuple(declaration.paths),
        declaration.description,
        declaration.required,
        declaration.secret,
        default,
    )


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of an argument that are not text
        raise ValueError("must be UTF-8") from None
    return text


def _integer(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > _MAX_NUMBER:
        raise ValueError("must be an integer, as 2")
    return int(text)


def _number(text: str) -> float | int:
    digits = text.removeprefix("-").replace(".", "", 1)
    if not digits.isdecimal() or len(text) > _MAX_NUMBER:
        raise ValueError("must be a number, as 0.5")
    return float(text) if "." in text else int(text)


def _list(text: str) -> list[str]:
    parts = [part.strip() for part in _string(text).split(",")]
    if not all(parts):
        raise ValueError("must be a list separated by commas, as A100,H100")
    return parts


KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "list": _list,
}


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _get(document: dict[str, Any], path: str) -> Any:
    """Return the value at a JSON pointer; None without one."""
    node: Any = document
    for step in _steps(path):
        if isinstance(node, list):
            node = node[int(step)]
        elif isinstance(node, dict):
            node = node.get(step)
        elif node is not None:
            raise ValueError(f"{path} leads through a value that is neither an object nor a list")
    return node


def _put(document: dict[str, Any], path: str, value: Any, text: str) -> None:
    """Set the value at a JSON pointer, with objects created on the way. A string, as in env, is replaced by the
    text."""
    *way, last = _steps(path)
    node: Any = document
    for step in way:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    at: Any = int(last) if isinstance(node, list) else last
    before = node[at] if isinstance(node, list) else node.get(at)
    node[at] = text if isinstance(before, str) else value


def _invalid(template: Template, document: dict[str, Any], values: Mapping[str, str]) -> list[Fault]:
    """Return the problems that Marathon would report, with the parameters that cause them."""
    definition = group_of(document) if template.is_group else app_of(document)
    if not isinstance(definition, Problems):
        is_meant = not template.is_group or isinstance(definition, Group)
        return [] if is_meant else [Fault((), "the result is not the definition of a group")]
    if isinstance(definition.details, str):
        return [Fault((), definition.details)]
    return [
        Fault(_at_fault(template, values, detail.path), "; ".join(detail.errors), detail.path)
        for detail in definition.details
    ]


def _at_fault(template: Template, values: Mapping[str, str], place: str) -> tuple[str, ...]:
    """Return the parameters whose values are at the place of a `Detail`."""
    return tuple(
        parameter.name
        for parameter in template.parameters
        if parameter.name in values and any(_is_within(place, path) for path in parameter.paths)
    )


def _is_within(place: str, path: str) -> bool:
    """Return whether the place of a `Detail`, "/apps(1)/gpu/models(0)", is at or below a pointer,
    "/apps/1/gpu/models"."""
    steps, at = _steps(path), _steps(place.replace("(", "/").replace(")", ""))
    return at[: len(steps)] == steps
