"""Types of answers of /v1/jobs/{id}/command, and its operation."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import says


class JobCommand(TypedDict):
    """Command line that submits a job again."""

    command: Annotated[str, says(description="command line of mesos-gpu run for a POSIX shell")]
    left_out: Annotated[
        dict[str, str], says(description="fields that are not in the line, each with the reason and a remedy")
    ]
    request: Annotated[
        dict[str, Any], says(description="body of POST /v1/jobs; values of env as `***` without show_env")
    ]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/jobs/{id}/command"): Operation(
        "show_job_command",
        "Show the command line that submits a job with the fields of this one",
        {200: JobCommand},
        (409,),
        query=(
            in_query(
                "show_env",
                {"type": "boolean", "default": False},
                "include values of the environment; without them the line takes them from the shell",
            ),
        ),
    ),
}
