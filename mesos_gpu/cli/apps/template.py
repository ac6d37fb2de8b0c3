"""`mesos-gpu template`: definitions of apps for Marathon, to start from."""

from pathlib import Path
from typing import Any, ClassVar, Final

import click
from click.shell_completion import CompletionItem

import mesos_gpu
from mesos_gpu.cli import output
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Pair
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.wire.marathon.template import Parameter, Template, WrongValues, template_of
from mesos_gpu.wire.marathon.template import render as rendered

_SUFFIX: Final = ".json"


class _Template(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.apps.template:list_templates", "List the templates."),
        "show": ("mesos_gpu.cli.apps.template", "Show what a template is for, and what can be set."),
        "render": (
            "mesos_gpu.cli.apps.template",
            "Print a template with values of your own, ready for Marathon.",
        ),
    }


@click.group(cls=_Template)
def template() -> None:
    """Templates: apps for Marathon, ready to send.

    Each is a definition that Marathon takes as it is; `render` puts values in their places and checks what comes out.
    """


class _Name(click.ParamType[str]):
    """The name of a template."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """All that begin so."""
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


_json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def directory() -> Path:
    """The directory of templates, beside the package: so it is in a checkout, and so it is installed."""
    return Path(mesos_gpu.__file__).parents[1] / "marathon_templates"


def names() -> list[str]:
    """The names of all templates, sorted."""
    return sorted(path.stem for path in directory().glob(f"*{_SUFFIX}"))


def load(name: str) -> Template:
    """The template of that name.

    Raises:
        NotFound: There is none.
        Unavailable: There are no templates at all.
    """
    known = _known()
    if name not in known:
        raise NotFound(f"there is no template {name}", remedy=f"take one of {', '.join(known)}")
    return template_of(name, (directory() / (name + _SUFFIX)).read_bytes())


def _known() -> list[str]:
    known = names()
    if not known:
        raise Unavailable(f"there are no templates in {directory()}", remedy="install mesos_gpu anew")
    return known


@click.command("list")
@_json_option
def list_templates(as_json: bool) -> None:
    """List the templates."""
    templates = [load(name) for name in _known()]
    if as_json:
        output.document([_summary(each) for each in templates])
        return
    rows = [(each.name, _kind(each), each.about) for each in templates]
    output.table(("NAME", "KIND", "ABOUT"), rows, empty="")


@click.command()
@click.argument("name", type=_Name())
@_json_option
def show(name: str, as_json: bool) -> None:
    """Show what a template is for, and what can be set."""
    template = load(name)
    if as_json:
        parameters = {each.name: _described(each) for each in template.parameters}
        output.document({**_summary(template), "parameters": parameters, "document": dict(template.document)})
        return
    output.line(f"{template.name}: {template.about}")
    for note in template.notes:
        output.line(f"- {note}")
    output.line("")
    rows = [(each.name, each.kind, _default(each), each.description) for each in template.parameters]
    output.table(("PARAMETER", "TYPE", "DEFAULT", "WHAT"), rows, empty="There is nothing to set.")


@click.command()
@click.argument("name", type=_Name())
@click.option(
    "-s",
    "--set",
    "values",
    type=Pair(r"[^=\s]+", "gpus=2"),
    multiple=True,
    help="Give a parameter its value; `template show` lists them. A list has commas.",
)
@click.option("--json", "as_json", is_flag=True, help="Only the JSON, without the line on where to send it.")
def render(name: str, values: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Print a template with values of your own, ready for Marathon.

    What comes out is checked as Marathon would; all that is wrong is said at once (exit code 2).
    """
    given = [key for key, _ in values]
    twice = sorted({key for key in given if given.count(key) > 1})
    if twice:
        raise WrongValues(f"set twice: {', '.join(twice)}", remedy="set each once")
    template = load(name)
    output.document(rendered(template, dict(values)))
    if not as_json:
        output.note(f"start it with `mesos-gpu app create FILE`, or send it to URL{template.route}")


def _summary(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "kind": _kind(template),
        "about": template.about,
        "notes": list(template.notes),
        "route": template.route,
    }


def _kind(template: Template) -> str:
    return "group" if template.is_group else "app"


def _described(each: Parameter) -> dict[str, Any]:
    return {
        "type": each.kind,
        "default": None if each.required else each.default,
        "required": each.required,
        "description": each.description,
        "paths": list(each.paths),
    }


def _default(each: Parameter) -> str | None:
    if each.required:
        return "(required)"
    return ",".join(each.default) if isinstance(each.default, list) else _text(each.default)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
