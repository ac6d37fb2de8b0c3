"""The answer to a request that submits a job, as a type."""

from typing import Annotated

from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Job


class SubmittedJob(Job):
    """A job that was just submitted."""

    warnings: Annotated[
        list[str],
        says(
            description="what the request may not have meant: models of GPUs that no node has; the job waits for one"
        ),
    ]
