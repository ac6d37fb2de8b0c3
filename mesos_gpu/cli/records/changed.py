"""Latest changes of a job or a GPU from the audit log, for commands that show it."""

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mesos_gpu.cli import output

if TYPE_CHECKING:
    from mesos_gpu.api.spec.audit import Change
    from mesos_gpu.cli.client import Client

LAST: Final = 3
_ANYBODY: Final = "anybody"  # the user of a change made without authentication
#: Descriptions of audited verbs and routes.
_ACTS: Final = {
    "POST /v1/jobs": "submitted",
    "DELETE /v1/jobs/{id}": "killed",
    "PATCH /v1/jobs/{id}": "resized",
    "DELETE /v1/jobs/{id}/resize": "resize withdrawn",
    "PUT /v1/jobs/{id}/keep": "kept although idle",
    "DELETE /v1/jobs/{id}/keep": "no longer kept",
    "POST /v1/jobs/{id}/checkpoint": "checkpoint saved",
    "POST /v1/jobs/{id}/exec": "exec",
    "POST /v1/jobs/{id}/files": "files opened",
    "POST /v1/jobs/{id}/forward": "port-forward",
    "CLOSE /v1/channels/{id}": "session ended",
    "POST /v1/gpus/{id}/drain": "drained",
    "DELETE /v1/gpus/{id}/drain": "undrained",
    "POST /v1/gpus/{id}/reset": "reset requested",
}
_COUNTS: Final = ("sent=", "received=")  # bytes of a session
_NONE_THERE: Final = (403, 404)  # the user may not read it, or the scheduler keeps no records


def changes_of(client: "Client", collection: str, name: str) -> "list[Change]":
    """Return the latest recorded changes, newest first; none without records. `collection` is "jobs" or "gpus"."""
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
    """Return a label and a text for each change, newest last."""
    return [("changed by", line(change)) for change in reversed(changes)]


def line(change: "Change") -> str:
    """Return a change as one line: user, time, action, details."""
    who = change["who"] if change["who"] != _ANYBODY else "(not authenticated)"
    details = (change["detail"] or "").split(" ")
    detail = " ".join(word for word in details if not word.startswith(_COUNTS))
    words = (who, output.stamp(change["at"]), _ACTS.get(change["what"], change["what"]), detail)
    return "  ".join(word for word in words if word)
