"""`mesos-gpu access`: who may do what."""

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from mesos_gpu.access.rights import BY_NAME
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.table import Table
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.access import Access
    from mesos_gpu.cli.access.calls import Documents

_DIFFERENT, _TROUBLE = 1, 2
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


class _Access(Table):
    table: ClassVar = {
        "show": ("mesos_gpu.cli.access.commands", "Print the document: a file that `apply` takes."),
        "apply": ("mesos_gpu.cli.access.commands", "Let the document be what a file says."),
        "diff": ("mesos_gpu.cli.access.commands", "Say what a file would change; nothing is changed."),
        "can": ("mesos_gpu.cli.access.commands", "Say whether a name may do something, and why."),
        "versions": ("mesos_gpu.cli.access.commands", "List the latest versions of the document."),
        "rollback": ("mesos_gpu.cli.access.commands", "Let the document be what an earlier version said."),
        "rights": ("mesos_gpu.cli.access.commands", "List all rights, and the roles that are always there."),
    }


@click.group(cls=_Access)
def access() -> None:
    """Roles and bindings: who may do what.

    One document says it. Each change of it is a version, and only who has read the latest one changes it.
    """


def _documents(app: App) -> "Documents":
    from mesos_gpu.cli.access.calls import Documents

    return Documents(app.client())


@click.command()
@click.option("--version", type=click.IntRange(0), metavar="N", help="As it was; default: the latest.")
@json_option
@api_command
def show(app: App, version: int | None, as_json: bool) -> None:
    """Print the document: a file that `apply` takes.

    What has its default is left out. `version` in it is the one that it was made of: `apply` refuses the file when
    somebody else has changed the document since. Take the line away, and it is applied to whatever is there.
    """
    from mesos_gpu.cli.access.files import to_yaml

    documents = _documents(app)
    shown = documents.latest() if version is None else documents.version(version)
    if as_json:
        output.document(shown)
        return
    said = f": {shown['comment']}" if shown["comment"] else ""
    when = f", {output.stamp(shown['at'])}, by {shown['by'] or 'anybody'}{said}" if shown["at"] else ""
    output.line(f"# Version {shown['version']}{when}")
    click.echo(to_yaml(shown), nl=False)


@click.command()
@click.argument("file", type=FILE)
@click.option("--comment", default="", help="Why; the versions show it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Even if nobody but root on the scheduler's host could change it again."
)
@json_option
@api_command
def apply(app: App, file: str, comment: str, yes: bool, force: bool, as_json: bool) -> None:
    """Let the document be what a file says.

    FILE is YAML or JSON, - for stdin. It is checked as a whole, and what it would change is printed before it is
    asked whether to. Nobody gives rights that he has not himself.
    """
    from mesos_gpu.cli.access.files import read_document
    from mesos_gpu.wire.access.document import encode

    given = read_document(file)
    documents = _documents(app)
    latest = documents.latest()
    if given.version not in (None, latest["version"]):
        raise Conflict(
            f"{file} was made of version {given.version}, and the document is at version {latest['version']}",
            remedy="see what has changed (mesos-gpu access diff), and take it over; or leave `version` out of the file",
        )
    wanted = {**encode(given.document), "comment": comment}
    _change(
        documents, latest, wanted, "stdin" if file == "-" else file, yes=yes, force=force, as_json=as_json
    )


@click.command()
@click.argument("file", type=FILE)
@json_option
@api_command
@click.pass_context
def diff(ctx: click.Context, app: App, file: str, as_json: bool) -> None:
    """Say what a file would change; nothing is changed.

    The exit code is that of diff: 0 for no difference, 1 for some, 2 for trouble.
    """
    from mesos_gpu.cli.access.files import difference, read_document
    from mesos_gpu.wire.access.document import encode

    try:
        wanted, latest = encode(read_document(file).document), _documents(app).latest()
        lines = list(difference(latest, wanted, file))
    except MesosGpuError as err:
        output.error(err)
        ctx.exit(_TROUBLE)
    if as_json:
        output.document({"version": latest["version"], "diff": lines})
    elif lines:
        _print(lines)
    else:
        output.note(f"{file} says what version {latest['version']} says")
    ctx.exit(_DIFFERENT if lines else 0)


def _right(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if text in BY_NAME:
        return text
    near = difflib.get_close_matches(text, BY_NAME, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise click.BadParameter(f"there is no right {text!r}; {meant}They are in: mesos-gpu access rights")


@click.command()
@click.argument("name")
@click.argument("right", callback=_right, metavar="RIGHT")
@click.option("--group", "groups", multiple=True, help="One that the name is in; may be repeated.")
@click.option("--queue", default="", help="Of the job that it is about.")
@click.option("--app", "path", default="", metavar="PATH", help="The app that it is about.")
@click.option("--owner", default="", help="Whose job, app or token it is about.")
@click.option("--about", default="", metavar="PATH", help="What else it is about, as a secret.")
@json_option
@api_command
@click.pass_context
def can(
    ctx: click.Context,
    app: App,
    name: str,
    right: str,
    groups: tuple[str, ...],
    queue: str,
    path: str,
    owner: str,
    about: str,
    as_json: bool,
) -> None:
    """Say whether a name may do something, and why.

    Without --queue, --app, --owner and --about: whether it may for all of the cluster. The exit code is 0 if it may,
    else 1. `mesos-gpu access rights` lists the rights.
    """
    about_what = {"queue": queue, "app": path, "owner": owner, "about": about}
    question = {"name": name, "groups": list(groups), "right": right, **about_what}
    answer = _documents(app).check({key: each for key, each in question.items() if each})
    if as_json:
        output.document(answer)
    elif answer["allowed"]:
        output.line(f"yes: {answer['name']} has {answer['right']}")
        for reason in answer["by"]:
            output.line(f"  {reason['reason']}")
    else:
        output.line(f"no: {answer['missing']}")
        output.line(f"  to give it: {answer['remedy']}")
    if not as_json and app.client().call("GET", "/v1/whoami", dict)["proof"] == "open":
        output.note("this scheduler asks nobody who he is: what the document says has no effect yet")
    ctx.exit(0 if answer["allowed"] else 1)


@click.command()
@json_option
@api_command
def versions(app: App, as_json: bool) -> None:
    """List the latest versions of the document."""
    from mesos_gpu.cli.fit import Fit

    kept = _documents(app).versions()
    if as_json:
        output.document({"versions": kept})
        return
    output.table(
        ("VERSION", "AT", "BY", "ROLES", "BINDINGS", "COMMENT"),
        [
            (
                each["version"],
                output.stamp(each["at"]),
                each["by"],
                each["roles"],
                each["bindings"],
                each["comment"],
            )
            for each in kept
        ],
        empty="Nobody has written the document yet; root on the scheduler's host may do everything.",
        fit=Fit(cut=("COMMENT", "BY"), leave=("ROLES", "BINDINGS")),
    )


@click.command()
@click.argument("version", type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Even if nobody but root on the scheduler's host could change it again."
)
@json_option
@api_command
def rollback(app: App, version: int, yes: bool, force: bool, as_json: bool) -> None:
    """Let the document be what an earlier version said.

    That is a new version with the old one's words.
    """
    documents = _documents(app)
    latest, old = documents.latest(), documents.version(version)
    wanted = {**old, "version": latest["version"], "comment": f"as version {version}"}
    _change(documents, latest, wanted, f"version {version}", yes=yes, force=force, as_json=as_json)


@click.command()
@json_option
@api_command
def rights(app: App, as_json: bool) -> None:
    """List all rights, and the roles that are always there."""
    from mesos_gpu.cli.fit import Fit

    known = _documents(app).rights()
    if as_json:
        output.document(known)
        return
    rows = [(each["name"], _narrowed(each), each["allows"]) for each in known["rights"]]
    output.table(("RIGHT", "NARROWED BY", "ALLOWS TO"), rows, empty="", fit=Fit(wrap=True))
    click.echo()
    given = [(role["name"], " ".join(role["rights"])) for role in known["roles"]]
    output.table(("ROLE", "RIGHTS"), given, empty="", fit=Fit(wrap=True))


def _narrowed(right: Mapping[str, Any]) -> str:
    return ", ".join(word for word, is_so in (("own", right["own"]), ("pattern", right["pattern"])) if is_so)


def _change(
    documents: "Documents",
    latest: "Access",
    wanted: Mapping[str, Any],
    source: str,
    *,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Show what would change, ask, and let it be so.

    Raises:
        UsageError: Nobody is there to ask.
    """
    from mesos_gpu.cli.access.files import difference

    lines = list(difference(latest, wanted, source))
    if not as_json:
        _print(lines)
    now = latest
    if lines:
        if not yes:
            _ask()
        now = documents.put({**wanted, "version": latest["version"]}, force=force)
    if as_json:
        output.document(now)
    elif not lines:
        output.line(f"Version {latest['version']} says that already; nothing is changed.")
    else:
        roles, bindings = counted(len(now["roles"]), "role"), counted(len(now["bindings"]), "binding")
        output.line(f"Version {now['version']}: {roles} and {bindings}.")
    for warning in now.get("warnings", ()):
        output.note(warning)


def _ask() -> None:
    if not output.is_terminal(sys.stdin):
        raise click.UsageError("stdin is no terminal, so nobody can be asked: add --yes")
    click.confirm("Let it be so?", abort=True, err=True)


def _print(lines: Sequence[str]) -> None:
    """Print a diff, in colours for people."""
    for line in lines:
        colour = _COLOURS.get(line[:1]) if output.is_terminal(sys.stdout) else None
        text = output.clean(line)
        click.echo(click.style(text, fg=colour) if colour else text)
