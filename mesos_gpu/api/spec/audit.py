"""What the audit log's routes answer, as types."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.access.record import Result


class AuditEntry(TypedDict):
    """A change or a refusal on record."""

    id: str
    at: Moment
    who: Annotated[str, says(description="a name; nobody: without one, anybody: nobody is asked for one")]
    proof: Annotated[str, says(description="its kind")]
    proved: Annotated[bool, says(description="false: the name is claimed at most")]
    address: Annotated[str, says(description="host and port of the connection")]
    relayed: Annotated[str, says(description="what proxies say of where it comes from")] | None
    what: Annotated[str, says(description="verb and route, or a command")]
    right: Annotated[str, says(description="that it takes")] | None
    on: Annotated[list[str], says(description="kind:id each, as job:train-1a2b3c4d")]
    result: Annotated[str, one_of(*Result)]
    status: Annotated[int, says(description="of HTTP")] | None
    reason: Annotated[str, says(description="the interface's word for a refusal")] | None
    request_id: str | None
    detail: str | None
    count: Annotated[int, says(minimum=1, description="so many refusals of one origin within a minute")]


class Audit(TypedDict):
    """What is on record, the newest first. A search is bounded: it may be empty and go on at its cursor."""

    records: list[AuditEntry]
    cursor: Annotated[str, says(description="where to go on; null: at the end")] | None
    lost: Annotated[int, says(minimum=0, description="records that could not be kept since the start")]
    full: Annotated[str, says(description="why no change is taken now")] | None


class Change(TypedDict):
    """What somebody did with a job or a GPU."""

    at: Moment
    who: str
    proved: Annotated[bool, says(description="false: nobody was asked for a proof")]
    what: Annotated[str, says(description="verb and route")]
    detail: Annotated[str, says(description="words of the request, as force=true")] | None


class ChangesMade(TypedDict):
    """The last changes of a job or a GPU that are on record, the newest first."""

    changes: list[Change]
