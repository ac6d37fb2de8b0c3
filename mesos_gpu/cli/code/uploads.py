"""`mesos-gpu uploads`: the user's code archives on the scheduler."""

from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.code.archive import in_mib
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Ref
from mesos_gpu.errors import NotFound
from mesos_gpu.model.words import counted
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.uploads import KeptUpload, Uploads
    from mesos_gpu.cli.client import Client

_SHORT: Final = 12  # digits shown of a digest
_STATES: Final = ("needed", "unused", "partial")


class _Uploads(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.code.uploads:list_uploads", "List uploads, last used first."),
        "rm": ("mesos_gpu.cli.code.uploads", "Remove uploads that no job needs."),
    }


@click.group(cls=_Uploads)
def uploads() -> None:
    """Uploads: your code archives on the scheduler.

    `run --upload` and `workdir` in a job file upload them. The scheduler removes archives that no job has needed for 7
    days, or earlier to free space. A removed archive is uploaded again with the next job that needs it.
    """


def _kept(client: "Client") -> "Uploads":
    from mesos_gpu.api.spec.uploads import Uploads

    return client.call("GET", "/v1/uploads", Uploads)


def _state(archive: "KeptUpload") -> str:
    if not archive["complete"]:
        return "partial"
    return "needed" if archive["jobs"] else "unused"


def _digests(client: "Client") -> list[str]:
    return [archive["sha256"] for archive in _kept(client)["uploads"]]


UPLOAD: Final = Ref(
    "sha256", r"(sha256:)?[0-9a-f]{4,64}", "the digest of an archive, or its first digits", _digests
)
UPLOADS: Final[Listing["KeptUpload", "KeptUpload"]] = Listing(
    columns=(
        Col("UPLOAD", lambda archive: archive["sha256"][:_SHORT]),
        Col(
            "SIZE",
            lambda archive: in_mib(archive["received_bytes"]),
            lambda archive: archive["received_bytes"],
        ),
        Col("STATE", _state),
        aged("USED", lambda archive: archive["used_at"]),
        Col("JOBS", lambda archive: len(archive["jobs"])),
        Col("SHA256", lambda archive: archive["sha256"], wide=True),
        Col("JOB_IDS", lambda archive: " ".join(archive["jobs"]), wide=True),
    ),
    id=lambda archive: archive["sha256"],
    rows=lambda archive: (archive,),
    filters={By.STATE: lambda archive: (_state(archive),)},
    states=_STATES,
)


@click.command("list")
@list_options(UPLOADS)
@api_command
def list_uploads(app: App, asked: "Asked[KeptUpload, KeptUpload]") -> None:
    """List uploads, last used first.

    Uploads in state `needed` belong to jobs that have not ended; `partial` ones are not complete.
    """
    client = app.client()
    empty = "No such upload." if asked.filtered else "You have no uploads on the scheduler."
    show(asked, lambda: Seen(_kept(client)["uploads"], empty))


@click.command()
@click.argument("uploads", metavar="[UPLOAD...]", nargs=-1, type=UPLOAD)
@click.option("--unused", is_flag=True, help="Remove all uploads that no job needs, including partial ones.")
@yes_option
@json_option
@api_command
def rm(app: App, uploads: tuple[str, ...], unused: bool, yes: bool, as_json: bool) -> None:
    """Remove uploads that no job needs.

    UPLOAD is a digest from `mesos-gpu uploads list`, or its first digits.
    """
    if bool(uploads) == unused:
        raise click.UsageError("give either digests or --unused")
    client = app.client()
    kept = _kept(client)["uploads"]
    chosen = (
        [upload for upload in kept if not upload["jobs"]] if unused else [_of(kept, each) for each in uploads]
    )
    if chosen:
        output.ask(f"Remove {counted(len(chosen), 'upload')}?", yes=yes)
    for upload in chosen:
        client.call("DELETE", f"/v1/uploads/{upload['sha256']}", dict)
    if as_json:
        output.document({"removed": chosen})
        return
    freed = sum(upload["received_bytes"] for upload in chosen)
    output.note(f"{counted(len(chosen), 'upload')} removed, {in_mib(freed)}")


def _of(kept: "list[KeptUpload]", start: str) -> "KeptUpload":
    """Return the upload whose digest begins with `start`.

    Raises:
        NotFound: No upload matches, or several do.
    """
    digest = start.removeprefix("sha256:")
    there = [upload for upload in kept if upload["sha256"].startswith(digest)]
    if len(there) == 1:
        return there[0]
    trouble = (
        f"{len(there)} of your uploads begin with {digest}" if there else f"no upload of yours is {digest}"
    )
    raise NotFound(trouble, remedy="list them with: mesos-gpu uploads list -o wide")
