"""Types of answers about job arrays."""

from typing import TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.shapes import Job


class Array(TypedDict):
    """A job array as a job, those of its tasks that are asked for by how far they are, each as indexes ("": none), and
    the first jobs among them; tasks that wait need not be jobs yet. total: so many jobs are among them."""

    array: Job
    waiting: str
    running: str
    finished: str
    failed: str
    killed: str
    jobs: list[Job]
    total: Count
