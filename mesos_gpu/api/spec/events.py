"""Types of answers about events."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation, in_query, of_patterns
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment, Notice
from mesos_gpu.model.tasks.event import EventKind


class BudgetEvent(TypedDict):
    """A threshold of a budget that was reached; at 100 nothing is left in its period."""

    queue: str
    user: Annotated[str, says(description="user whose jobs the budget is for; null: all")] | None
    percent: Count
    period_ends: Moment


class Event(TypedDict):
    """An event of a job, a budget, a GPU, a node or apps. Fields that do not apply are null."""

    number: Count
    at: Moment
    kind: Annotated[str, one_of(*EventKind)]
    job_id: str | None
    user: (
        Annotated[str, says(description="an authenticated name; with a ?: the Unix user, not authenticated")]
        | None
    )
    queue: str | None
    app: Annotated[str, says(description="app whose instance the job is")] | None
    node: Annotated[str, says(description="host name")] | None
    gpu: Annotated[str, says(description="UUID of the GPU")] | None
    state: (
        Annotated[
            str,
            says(
                description="health of a GPU; lost or up for a node; begun, overdue, done or ended for a deployment"
            ),
        ]
        | None
    )
    exit_code: int | None
    deployment: Annotated[str, says(description="id of the deployment")] | None
    booking: Annotated[str, says(description="id of the booking")] | None
    apps: Annotated[list[str], says(description="apps that the deployment changes")]
    message: (
        Annotated[str, says(description="description; for a job only if the caller may read what it runs")]
        | None
    )
    notice: Notice | None
    budget: BudgetEvent | None


class Events(TypedDict):
    """Recent events, oldest first. last: number to pass as `after` in the next request; first: number of the oldest
    stored event, 0 without events. A client whose last number is smaller than first may have missed events.
    """

    events: list[Event]
    last: Count
    first: Count


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/events"): Operation(
        "list_events",
        "List recent events, at once or when there are any",
        {200: Events},
        query=(
            in_query(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 1 << 62, "default": 0},
                "events after the one with this number; waits until there is one",
            ),
            in_query(
                "timeout_s",
                {"type": "number", "minimum": 0.0, "maximum": 60.0, "default": 30.0},
                "maximum time to wait, in seconds",
            ),
            in_query(
                "kind",
                {"type": "array", "items": {"type": "string", "enum": [kind.value for kind in EventKind]}},
                "events of these kinds",
            ),
            in_query("job", {"type": "string"}, "events of jobs whose ids begin with this"),
            of_patterns("user", "user that the job is charged to"),
            of_patterns("queue", "the queue, or a queue above it"),
            of_patterns("app", "the app, or an app that a deployment changes"),
            of_patterns("node", "the host"),
            in_query(
                "since",
                {"type": "number", "minimum": 0.0, "maximum": 1e11, "default": 0.0},
                "events from this time on, in seconds since the epoch",
            ),
            in_query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000},
                "maximum number of events",
            ),
            in_query(
                "newest",
                {"type": "boolean", "default": False},
                "return the latest of the matching events, not the first",
            ),
        ),
    ),
}
