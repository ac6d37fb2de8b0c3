"""Job files: text to job requests, with every problem of every job at once."""

import json
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.wire.jobs import spec_from_mapping

WORKDIR: Final = "workdir"  # of a job in a file: a directory that is sent along; the interface has `upload`


def read_jobs(text: str, *, name: str) -> list[Mapping[str, Any]]:
    """The job requests of a JSON or YAML text: one object, or a list of them. `name` is for messages.

    Raises:
        BadFile: It is neither, or a job has a problem; all are listed, each with its place.
    """
    value = parse(text, name)
    jobs = value if isinstance(value, list) else [value]
    if not jobs:
        raise BadFile(f"{name} holds no job", remedy="write one job, or a list of jobs")
    prefixes = [f"/{i}" if isinstance(value, list) else "" for i in range(len(jobs))]
    problems = [line for prefix, job in zip(prefixes, jobs, strict=True) for line in _problems(prefix, job)]
    if problems:
        lines = "\n".join(f"  {line}" for line in problems)
        raise BadFile(
            f"{name} was not submitted:\n{lines}", remedy="correct the file; docs/reference/rest.md"
        )
    return jobs


def _problems(prefix: str, job: Any) -> list[str]:
    """What the scheduler would say of it, but for the rules that only its operator knows."""
    if not isinstance(job, dict):
        return [f"{prefix or '/'}: must be an object, got {json.dumps(job, default=str)[:60]}"]
    directory = job.get(WORKDIR, "")
    if WORKDIR in job and (not isinstance(directory, str) or not directory or "upload" in job):
        what = "must be a directory's path" if "upload" not in job else "may not come with upload"
        return [f"{prefix}/{WORKDIR}: {what}, got {json.dumps(directory, default=str)[:60]}"]
    checked = spec_from_mapping({key: value for key, value in job.items() if key != WORKDIR})
    if isinstance(checked, JobSpec):
        return []
    return [f"{(prefix + problem.path).rstrip('/') or '/'}: {problem.reason}" for problem in checked]
