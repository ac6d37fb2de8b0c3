"""Types of answers about the audit log."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.access.record import Result


class AuditEntry(TypedDict):
    """A recorded change or refusal."""

    id: str
    at: Moment
    who: Annotated[
        str,
        says(description="name of the caller; nobody: without credentials; anybody: authentication is off"),
    ]
    proof: Annotated[str, says(description="kind of credentials")]
    proved: Annotated[bool, says(description="false: the name was at most claimed")]
    address: Annotated[str, says(description="host and port of the connection")]
    relayed: Annotated[str, says(description="origin of the request, as stated by proxies")] | None
    what: Annotated[str, says(description="method and route, or a command")]
    right: Annotated[str, says(description="right that the request needs")] | None
    on: Annotated[list[str], says(description="resources as kind:id, such as job:train-1a2b3c4d")]
    result: Annotated[str, one_of(*Result)]
    status: Annotated[int, says(description="HTTP status")] | None
    reason: Annotated[str, says(description="error code of a refusal")] | None
    request_id: str | None
    detail: str | None
    count: Annotated[int, says(minimum=1, description="number of refusals from one origin within a minute")]


class Audit(TypedDict):
    """Recorded requests, the newest first. Each search is bounded: an answer may be empty, and the search continues
    at its cursor.
    """

    records: list[AuditEntry]
    cursor: Annotated[str, says(description="where to continue; null at the end")] | None
    lost: Annotated[
        int, says(minimum=0, description="records that could not be stored since the scheduler started")
    ]
    full: Annotated[str, says(description="why no change is accepted now")] | None


class Change(TypedDict):
    """A recorded change of a job or a GPU."""

    at: Moment
    who: str
    proved: Annotated[bool, says(description="false: the name was not authenticated")]
    what: Annotated[str, says(description="method and route")]
    detail: Annotated[str, says(description="fields of the request, such as force=true")] | None


class ChangesMade(TypedDict):
    """The latest recorded changes of a job or a GPU, the newest first."""

    changes: list[Change]
