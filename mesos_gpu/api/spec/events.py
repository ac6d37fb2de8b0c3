"""What /v1/events answers, as types."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation, in_query, of_patterns
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment, Notice
from mesos_gpu.model.tasks.event import EventKind


class BudgetEvent(TypedDict):
    """A threshold of a budget that was reached; 100: nothing is left in its period."""

    queue: str
    user: Annotated[str, says(description="whose jobs pay; null: all")] | None
    percent: Count
    period_ends: Moment


class Event(TypedDict):
    """Something that has befallen a job, a budget, a card, a node or apps. What it is not about is null."""

    number: Count
    at: Moment
    kind: Annotated[str, one_of(*EventKind)]
    job_id: str | None
    user: (
        Annotated[str, says(description="a proved name; with a ?: the UNIX user, whom nobody has proved")]
        | None
    )
    queue: str | None
    app: Annotated[str, says(description="of which the job is an instance")] | None
    node: Annotated[str, says(description="a host's name")] | None
    gpu: Annotated[str, says(description="a UUID")] | None
    state: (
        Annotated[
            str,
            says(
                description="of a GPU its health, of a node lost or up, of a deployment begun, done or ended"
            ),
        ]
        | None
    )
    exit_code: int | None
    deployment: Annotated[str, says(description="an id")] | None
    booking: Annotated[str, says(description="an id")] | None
    apps: Annotated[list[str], says(description="that the deployment is of")]
    message: Annotated[str, says(description="in words; of a job: for who may read what it runs")] | None
    notice: Notice | None
    budget: BudgetEvent | None


class Events(TypedDict):
    """What has happened of late, oldest first; last: the number to ask after; first: of the oldest event that is kept,
    0: there is none. Who knows an earlier one has missed some."""

    events: list[Event]
    last: Count
    first: Count


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/events"): Operation(
        "list_events",
        "What has happened of late, at once or when there is something",
        {200: Events},
        query=(
            in_query(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 1 << 62, "default": 0},
                "those after the one of this number, and wait for one",
            ),
            in_query(
                "timeout_s",
                {"type": "number", "minimum": 0.0, "maximum": 60.0, "default": 30.0},
                "wait so long at most, in seconds",
            ),
            in_query(
                "kind",
                {"type": "array", "items": {"type": "string", "enum": [kind.value for kind in EventKind]}},
                "any of these",
            ),
            in_query("job", {"type": "string"}, "of jobs whose id begins so"),
            of_patterns("user", "whom the job is put down to"),
            of_patterns("queue", "the queue, or one above it"),
            of_patterns("app", "the app, or one that a deployment is of"),
            of_patterns("node", "the host"),
            in_query(
                "since",
                {"type": "number", "minimum": 0.0, "maximum": 1e11, "default": 0.0},
                "from then on, in seconds since the epoch",
            ),
            in_query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000},
                "so many at most",
            ),
            in_query("newest", {"type": "boolean", "default": False}, "the latest of them, not the first"),
        ),
    ),
}
