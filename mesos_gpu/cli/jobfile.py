"""Job files: parsing into job requests, reporting all problems of all jobs with their lines."""

import json
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.adapters.files.places import lines_of, placed
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.cli.jobfiles.dialect import as_interface
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.jobs import spec_from_mapping

#: Field of a job in a file: a directory to upload; the interface has `upload` instead.
WORKDIR: Final = "workdir"


def read_jobs(text: str, *, name: str) -> list[Mapping[str, Any]]:
    """Return the job requests of a JSON or YAML text: one job or a list, in the interface's form but for `WORKDIR`.

    `name` is the file's name for messages.

    Raises:
        BadFile: The text is neither, or jobs have problems; all are listed, each with its place.
    """
    value = parse(text, name)
    jobs = value if isinstance(value, list) else [value]
    if not jobs:
        raise BadFile(f"{name} contains no job", remedy="write one job, or a list of jobs")
    prefixes = [f"/{i}" if isinstance(value, list) else "" for i in range(len(jobs))]
    requests: list[Mapping[str, Any]] = []
    problems: list[Problem] = []
    for prefix, job in zip(prefixes, jobs, strict=True):
        request, wrong = _checked(job)
        requests.append(request)
        problems += [Problem((prefix + problem.path).rstrip("/"), problem.reason) for problem in wrong]
    if problems:
        line_of = lines_of(text)
        lines = "\n".join(f"  {placed(line_of, problem.path, problem.reason)}" for problem in problems)
        raise BadFile(
            f"{name} was not submitted:\n{lines}",
            remedy="correct the file; its fields: mesos-gpu help submit",
        )
    return requests


def _checked(job: Any) -> tuple[Mapping[str, Any], list[Problem]]:
    """Return a job in the interface's form, and all problems except those of rules that only the operator knows."""
    if not isinstance(job, dict):
        return {}, [Problem("", f"must be an object, got {json.dumps(job, default=str)[:60]}")]
    request, problems, places = as_interface(job)
    directory = job.get(WORKDIR, "")
    if WORKDIR in job and (not isinstance(directory, str) or not directory or "upload" in job):
        what = (
            "must be the path of a directory"
            if "upload" not in job
            else "must not be given together with upload"
        )
        got = json.dumps(directory, default=str)[:60]
        problems.append(Problem(f"/{WORKDIR}", f"{what}, got {got}"))
    checked = spec_from_mapping({key: value for key, value in request.items() if key != WORKDIR})
    if not isinstance(checked, JobSpec):
        problems += [Problem(places.get(problem.path, problem.path), problem.reason) for problem in checked]
    return request, problems
