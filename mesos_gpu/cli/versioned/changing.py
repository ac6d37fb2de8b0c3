"""Commands for versioned documents: show, compare, apply, roll back."""

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
comment_option: Final = click.option(
    "--comment", default="", help="Reason of the change, shown in the list of versions."
)
version_option: Final = click.option(
    "--version", type=click.IntRange(0), metavar="N", help="Version to show; default: the latest."
)
_DIFFERENT, _TROUBLE = 1, 2
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def show(documents: Documents, version: int | None, *, as_json: bool) -> None:
    """Print a version, in the format of `apply`."""
    shown = documents.latest() if version is None else documents.version(version)
    if as_json:
        output.document(shown)
        return
    comment = f": {shown['comment']}" if shown["comment"] else ""
    when = (
        f", {output.stamp(shown['at'])}, by {shown['by'] or 'an unknown user'}{comment}"
        if shown["at"]
        else ""
    )
    output.remark(f"Version {shown['version']}{when}")
    print_remarks(documents.kind, shown)
    click.echo(to_yaml(documents.kind, shown), nl=False)


def wanted_of(documents: Documents, file: str, latest: Shown) -> dict[str, Any]:
    """Return the document of a file that is based on the latest version, or on none.

    Raises:
        BadFile: The file is not a valid document.
        Conflict: The file is based on another version.
    """
    form, command = documents.kind.form, documents.kind.command
    given = read_document(form, file)
    if given.version not in (None, latest["version"]):
        raise Conflict(
            f"{file} is based on version {given.version}, but the document is at version {latest['version']}",
            remedy=f"compare them with mesos-gpu {command} diff and update the file; or remove `version` from the "
            "file to "
            "overwrite the newer version",
        )
    return form.encode(given.document)


def source_of(file: str) -> str:
    """Return the name of a file for diffs."""
    return "stdin" if file == "-" else file


def diff(ctx: click.Context, documents: Documents, file: str, *, as_json: bool) -> None:
    """Print what a file would change, with the exit code of diff: 0 no difference, 1 differences, 2 error."""
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
        output.note(f"{file} is equal to version {latest['version']}")
    ctx.exit(_DIFFERENT if lines else 0)


def versions_listing(counts: Sequence[str]) -> Listing[Shown, Shown]:
    """Return the list of a document's versions; `counts` are the keys of count columns."""

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
        fit=Fit(cut=("COMMENT", "BY"), leave=(*(key.upper() for key in counts), "BY")),
    )


def versions(documents: Documents, asked: Asked[Shown, Shown]) -> None:
    """List the latest versions."""
    empty = (
        "No such version."
        if asked.filtered
        else f"No version of the document exists yet; {documents.kind.none}."
    )
    show_list(asked, lambda: Seen(documents.versions(), empty, lambda kept: {"versions": kept}))


def rolled_back(documents: Documents, latest: Shown, version: int) -> dict[str, Any]:
    """Return an earlier version's document as the next version."""
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
    """Print the changes, ask for confirmation, and apply them.

    Raises:
        UsageError: There is no terminal for the confirmation, and no --yes.
    """
    kind = documents.kind
    lines = list(difference(kind, latest, wanted, source))
    if not as_json:
        print_diff(lines)
    now = latest
    if lines:
        output.ask("Apply these changes?", yes=yes, shown=True)
        now = documents.put({**wanted, "version": latest["version"]}, query)
    if as_json:
        output.document(now)
    elif not lines:
        output.line(f"Version {latest['version']} is equal to the file; nothing was changed.")
    else:
        output.line(f"Version {now['version']}: {kind.told(now)}.")
        print_remarks(kind, now)
    for warning in now.get("warnings", ()):
        output.note(warning)


def print_remarks(kind: Kept, shown: Shown) -> None:
    """Print remarks about a version as YAML comments."""
    for line in kind.remarks(shown):
        output.line(f"# {line}")


def print_diff(lines: Sequence[str]) -> None:
    """Print a diff, coloured on a terminal."""
    for line in lines:
        colour = _COLOURS.get(line[:1]) if output.is_terminal(sys.stdout) else None
        text = output.clean(line)
        click.echo(click.style(text, fg=colour) if colour else text)
