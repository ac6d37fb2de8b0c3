"""`mesos-gpu queue show|apply|diff|versions|rollback`: versions of the tree of queues."""

from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.types import DEADLINE
from mesos_gpu.cli.versioned import changing
from mesos_gpu.cli.versioned.changing import FILE, comment_option, version_option
from mesos_gpu.errors import NotFound

if TYPE_CHECKING:
    from mesos_gpu.cli.versioned.kept import Documents, Shown


def _documents(app: App) -> "Documents":
    from mesos_gpu.cli.queues.files import KIND
    from mesos_gpu.cli.versioned.kept import Documents

    return Documents(app.client(), KIND)


reclaim_option = click.option(
    "--reclaim-after",
    type=DEADLINE,
    metavar="TIME",
    help="Time after which queues above their new fair share give GPUs back by preemption; default: no job is "
    "preempted.",
)


def _query(reclaim_after: float | None) -> dict[str, Any]:
    return {} if reclaim_after is None else {"reclaim_after_s": reclaim_after}


@click.command()
@click.argument("path", required=False)
@version_option
@json_option
@api_command
def show(app: App, path: str | None, version: int | None, as_json: bool) -> None:
    """Print the tree of queues, in the format of `apply`.

    Fields with default values are left out. `version` in the output is the version it was read from: `apply` refuses
    the file if the tree was changed since. Remove that line to apply the file to any version.

    With PATH, only that queue and the queues below it are printed.
    """
    documents = _documents(app)
    if path is None:
        changing.show(documents, version, as_json=as_json)
    else:
        _show_below(path, documents.latest() if version is None else documents.version(version), as_json)


def _show_below(path: str, shown: "Shown", as_json: bool) -> None:
    """Print the part of a version that consists of a queue and the queues below it."""
    queues = shown["queues"]
    below = {name: queues[name] for name in queues if name == path or name.startswith(f"{path}/")}
    if not below:
        raise NotFound(
            f"version {shown['version']} has no queue {path}",
            remedy="list all queues with: mesos-gpu queue list",
        )
    if as_json:
        output.document({"queues": below})
        return
    from mesos_gpu.cli.queues.files import queue_body
    from mesos_gpu.cli.versioned.files import yaml_of

    click.echo(yaml_of({"queues": {name: queue_body(spec) for name, spec in below.items()}}), nl=False)


@click.command()
@click.argument("file", type=FILE)
@comment_option
@yes_option
@click.option(
    "--overbook", is_flag=True, help="Apply even if guarantees exceed the GPUs; they are then scaled down."
)
@reclaim_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the changes and the work that would wait or be refused, without applying them.",
)
@json_option
@api_command
def apply(
    app: App,
    file: str,
    comment: str,
    yes: bool,
    overbook: bool,
    reclaim_after: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replace the tree of queues by a file.

    FILE is YAML or JSON, - for stdin. It is checked as a whole, and its changes are printed before you are asked to
    confirm them. No job is preempted because of the change, unless --reclaim-after is given.

    \b
      mesos-gpu queue apply queues.yaml --dry-run
      mesos-gpu queue apply queues.yaml --comment "vision has 8 more"
    """
    documents = _documents(app)
    latest = documents.latest()
    wanted = {**changing.wanted_of(documents, file, latest), "comment": comment}
    if overbook:
        wanted["overbook"] = True
    if dry_run:
        from mesos_gpu.cli.queues.plans import try_out

        try_out(app.client(), documents, latest, wanted, changing.source_of(file), as_json=as_json)
        return
    changing.change(
        documents,
        latest,
        wanted,
        changing.source_of(file),
        query=_query(reclaim_after),
        yes=yes,
        as_json=as_json,
    )


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


_VERSIONS: Final = changing.versions_listing(("queues",))


@click.command()
@list_options(_VERSIONS)
@api_command
def versions(app: App, asked: "Asked[Shown, Shown]") -> None:
    """List the latest versions of the tree."""
    changing.versions(_documents(app), asked)


@click.command()
@click.argument("version", type=click.IntRange(0))
@yes_option
@reclaim_option
@json_option
@api_command
def rollback(app: App, version: int, yes: bool, reclaim_after: float | None, as_json: bool) -> None:
    """Apply an earlier version of the tree again, as a new version.

    Version 0 has no queues: all jobs then wait in a single queue, as before the first document.
    """
    documents = _documents(app)
    latest = documents.latest()
    wanted = changing.rolled_back(documents, latest, version)
    source, query = f"version {version}", _query(reclaim_after)
    changing.change(documents, latest, wanted, source, query=query, yes=yes, as_json=as_json)
