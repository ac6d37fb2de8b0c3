"""What the commands of a document that is kept as versions do: show, compare, apply, undo."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.versioned.files import difference, read_document, to_yaml
from mesos_gpu.cli.versioned.kept import Documents, Kept, Shown
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.wire.listing.filters import By

FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
comment_option: Final = click.option("--comment", default="", help="Why; the versions show it.")
version_option: Final = click.option(
    "--version", type=click.IntRange(0), metavar="N", help="As it was; default: the latest."
)
_DIFFERENT, _TROUBLE = 1, 2
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def show(documents: Documents, version: int | None, *, as_json: bool) -> None:
    """Print a version: a file that `apply` takes."""
    shown = documents.latest() if version is None else documents.version(version)
    if as_json:
        output.document(shown)
        return
    said = f": {shown['comment']}" if shown["comment"] else ""
    when = f", {output.stamp(shown['at'])}, by {shown['by'] or 'anybody'}{said}" if shown["at"] else ""
    output.remark(f"Version {shown['version']}{when}")
    print_remarks(documents.kind, shown)
    click.echo(to_yaml(documents.kind, shown), nl=False)


def wanted_of(documents: Documents, file: str, latest: Shown) -> dict[str, Any]:
    """What a file asks for, if it was made of the latest version or of none.

    Raises:
        BadFile: It is no such document.
        Conflict: It was made of another one.
    """
    form, command = documents.kind.form, documents.kind.command
    given = read_document(form, file)
    if given.version not in (None, latest["version"]):
        raise Conflict(
            f"{file} was made of version {given.version}, and the document is at version {latest['version']}",
            remedy=f"see what has changed (mesos-gpu {command} diff), and take it over; or leave `version` out of "
            "the file",
        )
    return form.encode(given.document)


def source_of(file: str) -> str:
    """A file, as it is called in a diff."""
    return "stdin" if file == "-" else file


def diff(ctx: click.Context, documents: Documents, file: str, *, as_json: bool) -> None:
    """Say what a file would change, with the exit code of diff: 0 for no difference, 1 for some, 2 for trouble."""
    kind = documents.kind
    try:
        wanted, latest = kind.form.encode(read_document(kind.form, file).document), documents.latest()
        lines = list(difference(kind, latest, wanted, file))
    except MesosGpuError as err:
        output.error(err)
        ctx.exit(_TROUBLE)
    if as_json:
        output.document({"version": latest["version"], "diff": lines})
    elif lines:
        print_diff(lines)
        print_remarks(kind, latest)
    else:
        output.note(f"{file} says what version {latest['version']} says")
    ctx.exit(_DIFFERENT if lines else 0)


def versions_listing(counts: Sequence[str]) -> Listing[Shown, Shown]:
    """The versions of a document. `counts`: what is told of how many of what they have."""

    def count(key: str) -> Col[Shown]:
        return Col(key.upper(), lambda each: each[key])

    return Listing(
        columns=(
            Col("VERSION", lambda each: each["version"]),
            Col("AT", lambda each: output.stamp(each["at"]), lambda each: each["at"]),
            Col("BY", lambda each: each["by"]),
            *map(count, counts),
            Col("COMMENT", lambda each: each["comment"]),
        ),
        id=lambda each: str(each["version"]),
        rows=lambda each: (each,),
        filters={By.USER: lambda each: (each["by"] or "",)},
        fit=Fit(cut=("COMMENT", "BY"), leave=(*(each.upper() for each in counts), "BY")),
    )


def versions(documents: Documents, asked: Asked[Shown, Shown]) -> None:
    """List the latest versions."""
    empty = (
        "No such version."
        if asked.filtered
        else f"Nobody has written the document yet; {documents.kind.none}."
    )
    show_list(asked, lambda: Seen(documents.versions(), empty, lambda kept: {"versions": kept}))


def rolled_back(documents: Documents, latest: Shown, version: int) -> dict[str, Any]:
    """What an earlier version said, to be the next one."""
    old = documents.version(version)
    return {**old, "version": latest["version"], "comment": f"as version {version}"}


def change(
    documents: Documents,
    latest: Shown,
    wanted: Mapping[str, Any],
    source: str,
    *,
    query: Mapping[str, Any],
    yes: bool,
    as_json: bool,
) -> None:
    """Show what would change, ask, and let it be so.

    Raises:
        UsageError: There is no terminal to ask on, and no --yes.
    """
    kind = documents.kind
    lines = list(difference(kind, latest, wanted, source))
    if not as_json:
        print_diff(lines)
    now = latest
    if lines:
        output.ask("Let it be so?", yes=yes, shown=True)
        now = documents.put({**wanted, "version": latest["version"]}, query)
    if as_json:
        output.document(now)
    elif not lines:
        output.line(f"Version {latest['version']} says that already; nothing is changed.")
    else:
        output.line(f"Version {now['version']}: {kind.told(now)}.")
        print_remarks(kind, now)
    for warning in now.get("warnings", ()):
        output.note(warning)


def print_remarks(kind: Kept, shown: Shown) -> None:
    """Print what else is said of a version, as comments of YAML."""
    for line in kind.remarks(shown):
        output.line(f"# {line}")


def print_diff(lines: Sequence[str]) -> None:
    """Print a diff, in colours for people."""
    for line in lines:
        colour = _COLOURS.get(line[:1]) if output.is_terminal(sys.stdout) else None
        text = output.clean(line)
        click.echo(click.style(text, fg=colour) if colour else text)
