"""Templates: apps and groups that Marathon takes as they are, and that say which of their values are meant to change.

A template is a definition with one more object, which Marathon ignores: `template`. A parameter is where its value
goes, as JSON pointers (RFC 6901); its default is what stands there. docs/templates.md has the format. Pure.
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
_MAX_NUMBER: Final = 18  # characters; more would be no exact JSON number


@dataclass(frozen=True, slots=True)
class Fault:
    """A thing that is wrong.

    Attributes:
        parameters: The names of those whose values are at fault; none: it is no value's.
        place: Where in the definition, as Marathon writes it; "": the value came into none.
    """

    parameters: tuple[str, ...]
    reason: str
    place: str = ""

    def line(self, values: Mapping[str, str]) -> str:
        """In words, with what was given."""
        given = [f"{name}={values[name]}" if values.get(name) else name for name in self.parameters]
        where = " ".join((*given, *([f"({self.place})"] if self.place else ())))
        return f"{where}: {self.reason}" if where else self.reason

    def problems(self, path: str) -> list[Problem]:
        """For each of its parameters, whose values are in an object at the JSON pointer `path`."""
        if not self.parameters:
            return [Problem(path, f"{self.place}: {self.reason}" if self.place else self.reason)]
        return [Problem(f"{path}/{escaped(name)}", self.reason) for name in self.parameters]


class WrongValues(MesosGpuError):
    """Values that the template has no place for, or that make no valid definition; all of them at once."""

    exit_code, http_status = 2, 400

    def __init__(self, what: str, *, remedy: str, faults: Sequence[Fault] = ()) -> None:
        """`faults`: what is wrong, one by one."""
        super().__init__(what, remedy=remedy)
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that is meant to change. `kind` is "string", "integer", "number" or "list" (of strings)."""

    name: str
    kind: str
    paths: tuple[str, ...]  # JSON pointers, one at least
    description: str
    required: bool  # what stands there is an example, as a host's name
    secret: bool  # forms and messages do not show it
    default: Any  # None: nothing stands there


@dataclass(frozen=True, slots=True)
class Template:
    """`document` is the definition without the object `template`."""

    name: str
    about: str
    notes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    document: Mapping[str, Any]

    @property
    def is_group(self) -> bool:
        """Whether it is for /v2/groups rather than /v2/apps."""
        return "apps" in self.document or "groups" in self.document

    @property
    def kind(self) -> str:
        """What it defines: "group" or "app"."""
        return "group" if self.is_group else "app"

    @property
    def route(self) -> str:
        """Where the rendered definition is to be sent (POST)."""
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
    """Read a template's file.

    Raises:
        Damaged: It is no JSON, or its object `template` is not as it has to be.
    """
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
        about = msgspec.convert(document.pop(KEY, None), _About)
        parameters = tuple(_parameter(key, each, document) for key, each in about.parameters.items())
    except (ValueError, LookupError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(f"template {name}: {error}", remedy="docs/templates.md has the format") from None
    return Template(name, about.about, tuple(about.notes), parameters, document)


def render(template: Template, values: Mapping[str, str]) -> dict[str, Any]:
    """The definition with `values`, by the parameters' names, in their places.

    Raises:
        WrongValues: A value is unknown, mistyped or missing, or what comes out is not valid.
    """
    known = {each.name: each for each in template.parameters}
    wrong = [Fault((name,), f"there is no parameter {name}") for name in values if name not in known]
    document = deepcopy(dict(template.document))
    for each in template.parameters:
        if each.required and not values.get(each.name):
            wrong.append(Fault((each.name,), f"is missing: {each.description}"))
        elif each.name in values:
            wrong += _set(document, each, values[each.name])
    wrong += _invalid(template, document, values)
    if wrong:
        shown = {
            name: "***" if name in known and known[name].secret else text for name, text in values.items()
        }
        lines = (f"  {fault.line(shown)}" for fault in wrong)
        what = "\n".join((f"template {template.name} cannot be rendered:", *lines))
        remedy = f"`mesos-gpu template show {template.name}` lists what there is to set"
        raise WrongValues(what, remedy=remedy, faults=wrong)
    return document


def summary_of(template: Template) -> dict[str, Any]:
    """A template as JSON, without what can be set."""
    return {
        "name": template.name,
        "kind": template.kind,
        "about": template.about,
        "notes": list(template.notes),
        "route": template.route,
    }


def described(template: Template) -> dict[str, Any]:
    """A template as JSON, without its definition."""
    parameters = {each.name: _parameter_json(each) for each in template.parameters}
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
    """Put the value in all its places; what is wrong with it, if it is none."""
    try:
        value = KINDS[parameter.kind](text)
    except ValueError as error:
        return [Fault((parameter.name,), str(error))]
    for path in parameter.paths:
        _put(document, path, value, text)
    return []


def _parameter(name: str, said: _Parameter, document: dict[str, Any]) -> Parameter:
    if said.type not in KINDS:
        raise ValueError(f"parameter {name}: type is none of {', '.join(KINDS)}")
    if not said.paths or not all(path.startswith("/") for path in said.paths):
        raise ValueError(
            f"parameter {name}: paths are JSON pointers, one at least, as /container/docker/image"
        )
    default, *others = (_get(document, path) for path in said.paths)
    if any(str(other) != str(default) for other in others):
        raise ValueError(f"parameter {name}: its places differ")
    if said.required and default is None:
        raise ValueError(
            f"parameter {name}: needs an example in its place, so that the file is valid as it is"
        )
    if said.secret and (said.type != "string" or default is not None):
        raise ValueError(f"parameter {name}: a secret is a string, and none stands in the file")
    return Parameter(
        name, said.type, tuple(said.paths), said.description, said.required, said.secret, default
    )


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # an argument's bytes that are no text
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
        raise ValueError("must be a list with commas, as A100,H100")
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
    """What stands there; None: nothing."""
    node: Any = document
    for step in _steps(path):
        if isinstance(node, list):
            node = node[int(step)]
        elif isinstance(node, dict):
            node = node.get(step)
        elif node is not None:
            raise ValueError(f"{path} leads through a value")
    return node


def _put(document: dict[str, Any], path: str, value: Any, text: str) -> None:
    """Objects on the way are made. Where a string stands, as in env, there will be a string."""
    *way, last = _steps(path)
    node: Any = document
    for step in way:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    at: Any = int(last) if isinstance(node, list) else last
    before = node[at] if isinstance(node, list) else node.get(at)
    node[at] = text if isinstance(before, str) else value


def _invalid(template: Template, document: dict[str, Any], values: Mapping[str, str]) -> list[Fault]:
    """What Marathon would refuse, with the values that are at fault."""
    definition = group_of(document) if template.is_group else app_of(document)
    if not isinstance(definition, Problems):
        is_meant = not template.is_group or isinstance(definition, Group)
        return [] if is_meant else [Fault((), "it is no group's definition")]
    if isinstance(definition.details, str):
        return [Fault((), definition.details)]
    return [
        Fault(_at_fault(template, values, detail.path), "; ".join(detail.errors), detail.path)
        for detail in definition.details
    ]


def _at_fault(template: Template, values: Mapping[str, str], place: str) -> tuple[str, ...]:
    """Parameters whose values are in a `Detail`'s place."""
    return tuple(
        each.name
        for each in template.parameters
        if each.name in values and any(_is_within(place, path) for path in each.paths)
    )


def _is_within(place: str, path: str) -> bool:
    """Whether a `Detail`'s place, as "/apps(1)/gpu/models(0)", is that of the pointer "/apps/1/gpu/models" or below."""
    steps, at = _steps(path), _steps(place.replace("(", "/").replace(")", ""))
    return at[: len(steps)] == steps
