"""`mesos-gpu diff`: changes that an app file would make."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Difference, Preview, Warned

_DIFFERENT, _TROUBLE = 1, 2
_MAX: Final = 1 << 40  # bytes of an archive; the scheduler enforces its limit when it is sent
_MODELS: Final = "/gpu/models"  # path of the warning that no node has the GPU model
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True))
@click.option("--replace", is_flag=True, help="Reset fields that are not in the file to their defaults.")
@json_option
@api_command
@click.pass_context
def diff(ctx: click.Context, app: App, file: str, replace: bool, as_json: bool) -> None:
    """Show what an app file would change, without changing it.

    FILE is as for `app create` and `app update`. The scheduler checks it and computes the result, defaults included.
    Each line is a changed field: + new, - removed, ~ changed.

    Exit code as of diff: 0 without differences, 1 with differences, 2 on errors.
    """
    from mesos_gpu.cli.apps.appfile import read_file

    try:
        wanted = read_file(file)
        wanted.with_code(_digest_of, file)
        path, body = wanted.put
        flags = {"partialUpdate": False} if replace and wanted.group is None else {}
        with wanted.told():
            preview = app.marathon().preview("PUT", path, body, **flags)
    except MesosGpuError as err:
        output.error(err)
        ctx.exit(_TROUBLE)
    output.document(preview) if as_json else _show(preview)
    tell_warnings(preview["warnings"])
    ctx.exit(_DIFFERENT if preview["changes"] else 0)


def tell_warnings(warnings: "Iterable[Warned]") -> None:
    """Note on stderr settings of apps and groups that have no effect, and GPU models that no node has."""
    for warning in warnings:
        effect = "" if warning["path"] == _MODELS else " has no effect"
        output.note(f"{warning['id']}: {warning['path']}{effect}: {warning['message']}")


def _digest_of(directory: Path) -> str:
    """Return the reference that a directory's archive would get, without sending it."""
    from mesos_gpu.cli.code.archive import find, pack

    with open(os.devnull, "wb") as nowhere:
        return f"sha256:{pack(find(directory).entries, nowhere, _MAX).digest}"


def _show(preview: "Preview") -> None:
    actions = {act["app"]: act["action"] for step in preview["steps"] for act in step["actions"]}
    for difference in preview["changes"]:
        output.line(f"{difference['id']} {_effect(difference, actions.get(difference['id'], ''))}")
        if difference["before"] is not None and difference["after"] is not None:
            for change in changes("", difference["before"], difference["after"]):
                _line(change)


def _effect(each: "Difference", action: str) -> str:
    before, after = each["before"], each["after"]
    if before is None:
        return f"would be new, with {_instances(after)}"
    if after is None:
        return f"would be deleted, with its {_instances(before)}"
    if action == "RestartApplication":
        return f"would change: {_instances(after)} would restart"
    if before["instances"] != after["instances"]:
        return f"would change: from {before['instances']} to {_instances(after)}"
    return "would change: no instance would restart"


def _instances(app: Any) -> str:
    count = app["instances"]
    return counted(count, "instance")


class Change(NamedTuple):
    """A change of a field; `sign` is "+", "-" or "~"."""

    sign: str
    path: str
    before: Any
    after: Any


def changes(path: str, before: Any, after: Any) -> Iterator[Change]:
    """Yield each differing field, as deep as both sides have the same structure; paths are those of `app update`."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _at(f"{path}.{key}" if path else key, before, after, key)
    elif isinstance(before, list) and isinstance(after, list) and before and after:
        for i in range(max(len(before), len(after))):
            yield from _at(f"{path}.{i}", dict(enumerate(before)), dict(enumerate(after)), i)
    else:
        yield Change("~", path, before, after)


def _at(path: str, before: dict[Any, Any], after: dict[Any, Any], key: Any) -> Iterator[Change]:
    if key not in before:
        yield Change("+", path, None, after[key])
    elif key not in after:
        yield Change("-", path, before[key], None)
    else:
        yield from changes(path, before[key], after[key])


def _line(change: Change) -> None:
    before, after = _json(change.before), _json(change.after)
    values = {"+": after, "-": before, "~": f"{before} -> {after}"}[change.sign]
    text = output.clean(f"  {change.sign} {change.path}: {values}")
    click.echo(click.style(text, fg=_COLOURS[change.sign]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
