"""Types of answers about job arrays."""

from typing import TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.shapes import Job


class Array(TypedDict):
    """A job array as a job; the requested tasks by progress, each field as indexes ("" for none); and the first jobs
    among them, as waiting tasks need not be jobs yet. total: number of jobs among them.
    """

    array: Job
    waiting: str
    running: str
    finished: str
    failed: str
    killed: str
    jobs: list[Job]
    total: Count
