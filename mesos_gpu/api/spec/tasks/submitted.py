"""Type of the answer to a request that submits a job."""

from typing import Annotated

from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Job


class SubmittedJob(Job):
    """A job that was just submitted, with warnings about its request."""

    warnings: Annotated[
        list[str],
        says(
            description="possible mistakes in the request, such as GPU models that no node has; the job waits for one"
        ),
    ]
