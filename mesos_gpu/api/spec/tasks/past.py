"""Types of answers of /v1/history."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import MANY_PATTERNS, Operation, in_query, of_patterns
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.jobs.job import JobState

ENDED: Final = tuple(state.value for state in JobState if state.ended)
MAX: Final = 10_000  # jobs of an answer


class PastJob(TypedDict):
    """A job that has ended, whether or not it is still in the scheduler's state."""

    id: str
    name: str
    user: (
        Annotated[str, says(description="an authenticated name; with a ?: the Unix user, not authenticated")]
        | None
    )
    queue: str
    app: Annotated[str, says(description="app whose instance it was")] | None
    job_class: str | None
    state: Annotated[str, one_of(*(state for state in JobState if state.ended))]
    exit_code: int | None
    submitted_at: Moment
    started_at: Annotated[float, says(description="start of its latest attempt; null: it never ran")] | None
    ended_at: Moment
    attempts: Count
    tasks: Count
    gpus: Annotated[float, says(minimum=0, description="GPUs of each task, as limits count them")]
    gpu_models: list[str]
    gpu_hours: Annotated[float, says(minimum=0, description="GPU hours of all attempts")]
    lost_gpu_hours: Annotated[
        float, says(minimum=0, description="part of gpu_hours whose work was lost with its task")
    ]
    idle_gpu_hours: Annotated[float, says(minimum=0, description="part of gpu_hours in which GPUs were idle")]
    hostnames: list[str]
    labels: Annotated[dict[str, str], says(description="empty if the caller may not read what jobs run")]
    message: Annotated[str, says(description="null if the caller may not read what jobs run")] | None


class History(TypedDict):
    """Jobs that have ended, the latest first. cursor: for the request of earlier ones; null: there are none."""

    jobs: list[PastJob]
    cursor: str | None


_MOMENT: Final = {"type": "number", "minimum": 0.0, "maximum": 1e11}
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/history"): Operation(
        "show_history",
        "List ended jobs, including those that are no longer in the scheduler's state",
        {200: History},
        (404, 503),
        query=(
            in_query(
                "state",
                {"type": "array", "items": {"type": "string", "enum": [*ENDED]}},
                "jobs in one of these states",
            ),
            of_patterns("named", "name of the job"),
            of_patterns("user", "user that it is charged to; matches users that are not authenticated, too"),
            of_patterns("queue", "its queue; matches queues below it, too"),
            of_patterns("app", "its app; the first slash may be left out"),
            of_patterns("node", "host where it ran last; the first part of the name is enough"),
            in_query(
                "label",
                MANY_PATTERNS,
                "a key, or key=value, where * in the value matches anything; jobs must match all of them",
            ),
            in_query(
                "since",
                {**_MOMENT, "default": 0.0},
                "jobs that ended at this time or later, in seconds since the epoch",
            ),
            in_query(
                "until",
                {**_MOMENT, "default": 1e11},
                "jobs that ended before this time, in seconds since the epoch",
            ),
            in_query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": MAX, "default": 1000},
                "maximum number of jobs",
            ),
            in_query(
                "cursor",
                {"type": "string", "pattern": "^[0-9]{1,15}\\.[a-z0-9._-]{1,255}$"},
                "cursor of the previous answer",
            ),
        ),
    ),
}
