"""Who changed a job or a GPU last, for the commands that show it."""

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mesos_gpu.cli import output

if TYPE_CHECKING:
    from mesos_gpu.api.spec.audit import Change
    from mesos_gpu.cli.client import Client

LAST: Final = 3
_NONE_THERE: Final = (403, 404)  # it may not be seen, or the scheduler keeps no record


def changes_of(client: "Client", collection: str, name: str) -> "list[Change]":
    """The last changes on record, the newest first; none where there is no record. `collection`: jobs or gpus."""
    from mesos_gpu.api.spec.audit import ChangesMade
    from mesos_gpu.cli.client import Refused

    path = f"/v1/{collection}/{quote(name, safe='')}/changes"
    try:
        return client.call("GET", path, ChangesMade, {"limit": LAST})["changes"]
    except Refused as error:
        if error.http_status in _NONE_THERE:
            return []
        raise


def lines(changes: "list[Change]") -> list[tuple[str, str]]:
    """Labels and what is told beside them, the newest last."""
    return [("changed by", line(change)) for change in reversed(changes)]


def line(change: "Change") -> str:
    """A change in one line."""
    words = (change["who"], output.stamp(change["at"]), change["what"], change["detail"])
    return "  ".join(word for word in words if word)
