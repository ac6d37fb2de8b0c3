"""`mesos-gpu template`: ready-made app definitions for Marathon."""

from typing import Any, ClassVar, Final

import click
from click.shell_completion import CompletionItem

from mesos_gpu.adapters.files.templates import load, load_all, names
from mesos_gpu.cli import output
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Pair
from mesos_gpu.wire.listing.filters import By
from mesos_gpu.wire.marathon.template import Parameter, WrongValues, described, summary_of
from mesos_gpu.wire.marathon.template import render as rendered


class _Template(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.apps.template:list_templates", "List the templates."),
        "show": ("mesos_gpu.cli.apps.template", "Show the purpose and the parameters of a template."),
        "render": (
            "mesos_gpu.cli.apps.template",
            "Print a template with your values, ready for Marathon.",
        ),
    }


@click.group(cls=_Template)
def template() -> None:
    """Templates: apps for Marathon, ready to send.

    Each is a complete Marathon definition; `render` inserts parameter values and checks the result.
    """


class _Name(click.ParamType[str]):
    """The name of a template."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the typed text."""
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


_json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


_TEMPLATES: Final[Listing[dict[str, Any], dict[str, Any]]] = Listing(
    columns=(
        Col("NAME", lambda summary: summary["name"]),
        Col("KIND", lambda summary: summary["kind"]),
        Col("ROUTE", lambda summary: summary["route"], wide=True),
        Col("ABOUT", lambda summary: summary["about"]),
    ),
    id=lambda summary: summary["name"],
    rows=lambda summary: (summary,),
    filters={By.NAME: lambda summary: (summary["name"],)},
)


@click.command("list")
@list_options(_TEMPLATES)
def list_templates(asked: "Asked[dict[str, Any], dict[str, Any]]") -> None:
    """List the templates."""
    show_list(
        asked, lambda: Seen([summary_of(each_template) for each_template in load_all()], "No such template.")
    )


@click.command()
@click.argument("name", type=_Name())
@_json_option
def show(name: str, as_json: bool) -> None:
    """Show the purpose and the parameters of a template."""
    template = load(name)
    if as_json:
        output.document({**described(template), "document": dict(template.document)})
        return
    output.line(f"{template.name}: {template.about}")
    for note in template.notes:
        output.line(f"- {note}")
    output.line("")
    rows = [
        (parameter.name, parameter.kind, _default(parameter), parameter.description)
        for parameter in template.parameters
    ]
    output.table(("PARAMETER", "TYPE", "DEFAULT", "WHAT"), rows, empty="The template has no parameters.")


@click.command()
@click.argument("name", type=_Name())
@click.option(
    "-s",
    "--set",
    "values",
    type=Pair(r"[^=\s]+", "gpus=2"),
    multiple=True,
    help="Set a parameter, see `template show`; separate list items with commas.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print only the JSON, without the note on where to send it."
)
def render(name: str, values: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Print a template with your values, ready for Marathon.

    The result is checked like Marathon does; all problems are reported at once (exit code 2).

    \b
      mesos-gpu template render vllm -s gpus=2 --json > vllm.json
    """
    given = [key for key, _ in values]
    twice = sorted({key for key in given if given.count(key) > 1})
    if twice:
        raise WrongValues(f"parameters are set twice: {', '.join(twice)}", remedy="set each parameter once")
    template = load(name)
    output.document(rendered(template, dict(values)))
    if not as_json:
        output.note(f"start it with `mesos-gpu app create FILE`, or POST it to URL{template.route}")


def _default(parameter: Parameter) -> str | None:
    if parameter.required:
        return "(required)"
    return ",".join(parameter.default) if isinstance(parameter.default, list) else _text(parameter.default)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
