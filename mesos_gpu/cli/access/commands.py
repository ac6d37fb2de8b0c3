"""`mesos-gpu access`: roles and bindings."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from mesos_gpu.access.rights import BY_NAME
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.versioned import changing
from mesos_gpu.cli.versioned.changing import FILE, comment_option, version_option
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.access import Right
    from mesos_gpu.cli.access.calls import AccessDocuments
    from mesos_gpu.cli.versioned.kept import Shown


class _Access(Table):
    table: ClassVar = {
        "show": ("mesos_gpu.cli.access.commands", "Print the access document, in the format of `apply`."),
        "apply": ("mesos_gpu.cli.access.commands", "Replace the access document by a file."),
        "diff": ("mesos_gpu.cli.access.commands", "Show what a file would change, without changing it."),
        "can": ("mesos_gpu.cli.access.commands", "Show whether a user has a right, and why."),
        "versions": ("mesos_gpu.cli.access.commands", "List the latest versions of the access document."),
        "rollback": (
            "mesos_gpu.cli.access.commands",
            "Apply an earlier version of the access document again.",
        ),
        "rights": ("mesos_gpu.cli.access.commands", "List all rights, and the built-in roles."),
    }


@click.group(cls=_Access)
def access() -> None:
    """Access rules: roles, and the users and groups they are bound to.

    All rules are in one document. Each change creates a version, and must be based on the latest one.
    """


def _documents(app: App) -> "AccessDocuments":
    from mesos_gpu.cli.access.calls import AccessDocuments

    return AccessDocuments(app.client())


@click.command()
@version_option
@json_option
@api_command
def show(app: App, version: int | None, as_json: bool) -> None:
    """Print the access document, in the format of `apply`.

    Fields with default values are left out. `version` in the output is the version it was read from: `apply` refuses
    the file if the document was changed since. Remove that line to apply the file to any version.
    """
    changing.show(_documents(app), version, as_json=as_json)


@click.command()
@click.argument("file", type=FILE)
@comment_option
@yes_option
@click.option(
    "--force",
    is_flag=True,
    help="Apply even if only root on the scheduler's host could change the rules afterwards.",
)
@json_option
@api_command
def apply(app: App, file: str, comment: str, yes: bool, force: bool, as_json: bool) -> None:
    """Replace the access document by a file.

    FILE is YAML or JSON, - for stdin. It is checked as a whole, and its changes are printed before you are asked to
    confirm them. You can give only rights that you have yourself.
    """
    documents = _documents(app)
    latest = documents.latest()
    wanted = {**changing.wanted_of(documents, file, latest), "comment": comment}
    source, query = changing.source_of(file), _forced(force)
    changing.change(documents, latest, wanted, source, query=query, yes=yes, as_json=as_json)


def _forced(force: bool) -> dict[str, str]:
    return {"force": "true"} if force else {}


@click.command()
@click.argument("file", type=FILE)
@json_option
@api_command
@click.pass_context
def diff(ctx: click.Context, app: App, file: str, as_json: bool) -> None:
    """Show what a file would change, without changing it.

    Exit code as of diff: 0 without differences, 1 with differences, 2 on errors.
    """
    changing.diff(ctx, _documents(app), file, as_json=as_json)


def _right(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if text in BY_NAME:
        return text
    near = difflib.get_close_matches(text, BY_NAME, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise click.BadParameter(f"no right is called {text!r}; {meant}list them with: mesos-gpu access rights")


@click.command()
@click.argument("name")
@click.argument("right", callback=_right, metavar="RIGHT")
@click.option("--group", "groups", multiple=True, help="Group that NAME belongs to; may be repeated.")
@click.option("--queue", default="", help="Queue of the job.")
@click.option("--app", "path", default="", metavar="PATH", help="Path of the app.")
@click.option("--owner", default="", help="Owner of the job, app or token.")
@click.option("--about", default="", metavar="PATH", help="Path of another object, such as a secret.")
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
    """Show whether a user has a right, and why.

    Without --queue, --app, --owner and --about: whether NAME has the right for the whole cluster. Exit code 0 if yes,
    1 if no. `mesos-gpu access rights` lists the rights.

    \b
      mesos-gpu access can ann job:run --queue research
      mesos-gpu access can bob job:kill --owner ann
    """
    about_what = {"groups": list(groups), "queue": queue, "app": path, "owner": owner, "about": about}
    question = {key: value for key, value in about_what.items() if value}
    answer = _documents(app).check({"name": name, "right": right, **question})
    if as_json:
        output.document(answer)
    elif answer["allowed"]:
        output.line(f"yes: {answer['name']} has {answer['right']}")
        for reason in answer["by"]:
            output.line(f"  {reason['reason']}")
    else:
        output.line(f"no: {answer['missing']}")
        output.line(f"  to grant it: {answer['remedy']}")
    if not as_json and app.client().call("GET", "/v1/whoami", dict)["proof"] == "open":
        output.note("this scheduler runs without authentication, so access rules have no effect yet")
    ctx.exit(0 if answer["allowed"] else 1)


_VERSIONS: Final = changing.versions_listing(("roles", "bindings"))


@click.command()
@list_options(_VERSIONS)
@api_command
def versions(app: App, asked: "Asked[Shown, Shown]") -> None:
    """List the latest versions of the access document."""
    changing.versions(_documents(app), asked)


@click.command()
@click.argument("version", type=click.IntRange(1))
@yes_option
@click.option(
    "--force",
    is_flag=True,
    help="Apply even if only root on the scheduler's host could change the rules afterwards.",
)
@json_option
@api_command
def rollback(app: App, version: int, yes: bool, force: bool, as_json: bool) -> None:
    """Apply an earlier version of the access document again.

    This creates a new version with the content of the old one.
    """
    documents = _documents(app)
    latest = documents.latest()
    wanted = changing.rolled_back(documents, latest, version)
    source, query = f"version {version}", _forced(force)
    changing.change(documents, latest, wanted, source, query=query, yes=yes, as_json=as_json)


def _narrowed(right: Mapping[str, Any]) -> str:
    return ", ".join(word for word, is_so in (("own", right["own"]), ("pattern", right["pattern"])) if is_so)


_RIGHTS: Final[Listing["Right", "Right"]] = Listing(
    columns=(
        Col("RIGHT", lambda right: right["name"]),
        Col("NARROWED BY", _narrowed),
        Col("SCOPE", lambda right: right["scope"], wide=True),
        Col("ALLOWS TO", lambda right: right["allows"]),
    ),
    id=lambda right: right["name"],
    rows=lambda right: (right,),
    filters={By.NAME: lambda right: (right["name"],)},
    fit=Fit(wrap=True),
)


@click.command()
@list_options(_RIGHTS)
@api_command
def rights(app: App, asked: "Asked[Right, Right]") -> None:
    """List all rights, and the built-in roles."""
    documents = _documents(app)

    def load() -> "Seen[Right]":
        catalogue = documents.rights()

        def below(_rights: object) -> None:
            click.echo()
            given = [(role["name"], " ".join(role["rights"])) for role in catalogue["roles"]]
            output.table(("ROLE", "RIGHTS"), given, empty="", fit=Fit(wrap=True))

        return Seen(
            catalogue["rights"], "No such right.", lambda rights: {**catalogue, "rights": rights}, below
        )

    show_list(asked, load)
