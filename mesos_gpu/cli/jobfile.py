"""Job files: text to job requests, with every problem of every job at once, and the line where it is."""

import json
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.adapters.files.places import lines_of, placed
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.cli.jobfiles.dialect import as_interface
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.jobs import spec_from_mapping

WORKDIR: Final = "workdir"  # of a job in a file: a directory that is sent along; the interface has `upload`


def read_jobs(text: str, *, name: str) -> list[Mapping[str, Any]]:
    """The job requests of a JSON or YAML text: one object, or a list of them, as the interface takes them, but for
    `WORKDIR`. `name` is for messages.

    Raises:
        BadFile: It is neither, or a job has a problem; all are listed, each with its place.
    """
    value = parse(text, name)
    jobs = value if isinstance(value, list) else [value]
    if not jobs:
        raise BadFile(f"{name} holds no job", remedy="write one job, or a list of jobs")
    prefixes = [f"/{i}" if isinstance(value, list) else "" for i in range(len(jobs))]
    requests: list[Mapping[str, Any]] = []
    problems: list[Problem] = []
    for prefix, job in zip(prefixes, jobs, strict=True):
        request, wrong = _checked(job)
        requests.append(request)
        problems += [Problem((prefix + each.path).rstrip("/"), each.reason) for each in wrong]
    if problems:
        line_of = lines_of(text)
        lines = "\n".join(f"  {placed(line_of, each.path, each.reason)}" for each in problems)
        raise BadFile(
            f"{name} was not submitted:\n{lines}",
            remedy="correct the file; its fields: mesos-gpu help submit",
        )
    return requests


def _checked(job: Any) -> tuple[Mapping[str, Any], list[Problem]]:
    """A job as the interface takes it, and what the scheduler would say of it, but for the rules that only its operator
    knows."""
    if not isinstance(job, dict):
        return {}, [Problem("", f"must be an object, got {json.dumps(job, default=str)[:60]}")]
    request, problems, places = as_interface(job)
    directory = job.get(WORKDIR, "")
    if WORKDIR in job and (not isinstance(directory, str) or not directory or "upload" in job):
        what = "must be a directory's path" if "upload" not in job else "may not come with upload"
        got = json.dumps(directory, default=str)[:60]
        problems.append(Problem(f"/{WORKDIR}", f"{what}, got {got}"))
    checked = spec_from_mapping({key: value for key, value in request.items() if key != WORKDIR})
    if not isinstance(checked, JobSpec):
        problems += [Problem(places.get(each.path, each.path), each.reason) for each in checked]
    return request, problems
