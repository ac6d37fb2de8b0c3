"""What /v1/history answers, as types."""

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
    """A job that has ended, be it remembered by the scheduler still or not."""

    id: str
    name: str
    user: (
        Annotated[str, says(description="a proved name; with a ?: the UNIX user, whom nobody has proved")]
        | None
    )
    queue: str
    app: Annotated[str, says(description="of which it was an instance")] | None
    job_class: str | None
    state: Annotated[str, one_of(*(state for state in JobState if state.ended))]
    exit_code: int | None
    submitted_at: Moment
    started_at: Annotated[float, says(description="of its latest attempt; null: it never ran")] | None
    ended_at: Moment
    attempts: Count
    tasks: Count
    gpus: Annotated[float, says(minimum=0, description="of each task, as limits count them")]
    gpu_models: list[str]
    gpu_hours: Annotated[float, says(minimum=0, description="that it held, of all attempts")]
    lost_gpu_hours: Annotated[
        float, says(minimum=0, description="of that, of work that was lost with its task")
    ]
    idle_gpu_hours: Annotated[float, says(minimum=0, description="of that, of GPUs that did nothing")]
    hostnames: list[str]
    labels: Annotated[dict[str, str], says(description="for who may read what jobs run; else empty")]
    message: Annotated[str, says(description="for who may read what jobs run")] | None


class History(TypedDict):
    """Jobs that have ended, the latest first; cursor: to ask for those before with; null: there are none."""

    jobs: list[PastJob]
    cursor: str | None


_MOMENT: Final = {"type": "number", "minimum": 0.0, "maximum": 1e11}
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/history"): Operation(
        "show_history",
        "Jobs that have ended, also those that the scheduler has forgotten",
        {200: History},
        (404, 503),
        query=(
            in_query(
                "state", {"type": "array", "items": {"type": "string", "enum": [*ENDED]}}, "any of these"
            ),
            of_patterns("named", "its name"),
            of_patterns("user", "whom it is put down to; one that nobody has proved too"),
            of_patterns("queue", "its queue; those below it too"),
            of_patterns("app", "its app; without its slash too"),
            of_patterns("node", "where it ran last; the first part of its name is enough"),
            in_query(
                "label",
                MANY_PATTERNS,
                "a key, or key=value, in whose value * stands for anything; all of these",
            ),
            in_query("since", {**_MOMENT, "default": 0.0}, "ended from then on, in seconds since the epoch"),
            in_query("until", {**_MOMENT, "default": 1e11}, "ended before that"),
            in_query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": MAX, "default": 1000},
                "so many at most",
            ),
            in_query(
                "cursor",
                {"type": "string", "pattern": "^[0-9]{1,15}\\.[a-z0-9._-]{1,255}$"},
                "as of the answer before",
            ),
        ),
    ),
}
