"""`mesos-gpu storage`: the named volumes of jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Ref
from mesos_gpu.model.words import counted
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.tasks.volumes import NamedVolume, NamedVolumes
    from mesos_gpu.cli.client import Client

_MODULE: Final = "mesos_gpu.cli.files.storage"
_STATES: Final = ("used", "unused", "new", "removing")


class _Storage(Table):
    table: ClassVar = {
        "list": (f"{_MODULE}:list_volumes", "List named volumes, with their sizes, hosts and jobs."),
        "remove": (_MODULE, "Remove named volumes with all data in them."),
    }


@click.group(cls=_Storage)
def storage() -> None:
    """Named volumes of jobs: data on a host that outlives jobs.

    \b
      mesos-gpu run --volume name=data,path=data,size=10GiB -- sh -c 'date >> data/log'
      mesos-gpu storage list
      mesos-gpu storage remove data
    """


def _size(mib: int) -> str:
    from mesos_gpu.wire.mounts import size_text

    return size_text(mib)


def _state(volume: "NamedVolume") -> str:
    if volume["removing"]:
        return "removing"
    if volume["jobs"]:
        return "used"
    return "unused" if volume["hostname"] else "new"


def _asked_for(client: "Client", *, all_users: bool = False) -> "NamedVolumes":
    from mesos_gpu.api.spec.tasks.volumes import NamedVolumes

    return client.call("GET", "/v1/volumes", NamedVolumes, {"all_users": "true"} if all_users else None)


def _names(client: "Client") -> list[str]:
    return [volume["name"] for volume in _asked_for(client)["volumes"] if not volume["removing"]]


VOLUME: Final = Ref("name", "[a-z0-9][a-z0-9-]{0,62}", "the name of a volume, for example data", _names)
VOLUMES: Final[Listing["NamedVolume", "NamedVolume"]] = Listing(
    columns=(
        Col("NAME", lambda volume: volume["name"]),
        Col("OWNER", lambda volume: volume["owner"] or "(default user)", telling=True),
        Col("SIZE", lambda volume: _size(volume["size_mib"]), lambda volume: volume["size_mib"]),
        Col("STATE", _state),
        Col("HOST", lambda volume: volume["hostname"]),
        Col("USED_BY", lambda volume: " ".join(volume["jobs"])),
        aged("LAST_USED", lambda volume: volume["used_at"]),
        aged("AGE", lambda volume: volume["created_at"], wide=True),
        Col("UNIX_USER", lambda volume: volume["user"], wide=True),
        Col("ID", lambda volume: volume["id"], wide=True),
    ),
    id=lambda volume: volume["name"],
    rows=lambda volume: (volume,),
    filters={
        By.STATE: lambda volume: (_state(volume),),
        By.NAME: lambda volume: (volume["name"],),
        By.USER: lambda volume: (volume["owner"],),
        By.NODE: lambda volume: (volume["hostname"] or "",),
    },
    fit=Fit(cut=("NAME", "USED_BY"), hosts=("HOST",), leave=("LAST_USED", "USED_BY", "OWNER")),
    states=_STATES,
)


@click.command("list")
@click.option("--all-users", is_flag=True, help="Also volumes of other users, if you may read all jobs.")
@list_options(VOLUMES)
@api_command
def list_volumes(app: App, asked: "Asked[NamedVolume, NamedVolume]", all_users: bool) -> None:
    """List named volumes, with their sizes, hosts and jobs.

    A new volume has no host yet. A volume that is being removed disappears with the next report of its host.
    """
    client = app.client()
    empty = (
        "No such volume."
        if asked.filtered
        else "You have no volumes; create one with: mesos-gpu run --volume"
    )
    limit_mib = 0

    def load() -> Seen["NamedVolume"]:
        nonlocal limit_mib
        answer = _asked_for(client, all_users=all_users)
        limit_mib = answer["owner_limit_mib"]
        return Seen(answer["volumes"], empty, below=below)

    def below(volumes: Sequence["NamedVolume"]) -> None:
        if volumes:
            size = _size(sum(volume["size_mib"] for volume in volumes))
            limit = f" (limit of each owner: {_size(limit_mib)})" if limit_mib else ""
            output.note(f"{counted(len(volumes), 'volume')}, {size} in total{limit}")

    show(asked, load)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=VOLUME)
@click.option("--user", metavar="NAME", help="Owner of the volumes, if that is another user.")
@yes_option
@json_option
@api_command
def remove(app: App, names: tuple[str, ...], user: str | None, yes: bool, as_json: bool) -> None:
    """Remove named volumes with all data in them.

    A volume of a job that has not ended is refused. If the host of a volume is not connected, the data is removed when
    it is back.
    """
    from mesos_gpu.api.spec.tasks.volumes import NamedVolume

    output.ask(f"Remove {', '.join(names)} and all data in {'it' if len(names) == 1 else 'them'}?", yes=yes)
    client, query = app.client(), {} if user is None else {"user": user}
    removed = []
    for name in names:
        removed.append(client.call("DELETE", f"/v1/volumes/{name}", NamedVolume, query))
        if not as_json:
            host = removed[-1]["hostname"]
            output.line(f"volume {name} is {f'being removed from {host}' if host else 'removed'}")
    if as_json:
        output.document({"removed": removed})
