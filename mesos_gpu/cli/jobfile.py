"""Job files: text to job requests, with every problem of every job at once."""

import json
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.job import JobSpec
from mesos_gpu.wire.jobs import spec_from_mapping

MOST_VALUES: Final = 100_000  # that a file may stand for


class BadJobFile(MesosGpuError):
    """The file does not hold jobs; nothing was sent (EX_DATAERR)."""

    exit_code, http_status = 65, 400


def read_jobs(text: str, *, name: str) -> list[Mapping[str, Any]]:
    """The job requests of a JSON or YAML text: one object, or a list of them. `name` is for messages.

    Raises:
        BadJobFile: It is neither, or a job has a problem; all are listed, each with its place.
    """
    value = parse(text, name)
    jobs = value if isinstance(value, list) else [value]
    if not jobs:
        raise BadJobFile(f"{name} holds no job", remedy="write one job, or a list of jobs")
    prefixes = [f"/{i}" if isinstance(value, list) else "" for i in range(len(jobs))]
    found = [line for prefix, job in zip(prefixes, jobs, strict=True) for line in _problems(prefix, job)]
    if found:
        lines = "\n".join(f"  {line}" for line in found)
        raise BadJobFile(
            f"{name} was not submitted:\n{lines}", remedy="correct the file; docs/reference/rest.md"
        )
    return jobs


def parse(text: str, name: str) -> Any:
    """What a JSON or YAML text says; BadJobFile if it is neither."""
    try:
        return _bounded(_parsed(text, name), name)
    except RecursionError as err:
        raise BadJobFile(f"{name} is nested too deeply", remedy="correct the file") from err


def _bounded(value: Any, name: str) -> Any:
    """Aliases of YAML let a few lines stand for more values than any memory holds, or for themselves."""
    sizes: dict[int, int] = {}

    def size(each: Any) -> int:
        if not isinstance(each, dict | list):
            return 1
        if id(each) not in sizes:
            sizes[id(each)] = MOST_VALUES + 1  # until it is known: what holds itself has no end
            inner = each.values() if isinstance(each, dict) else each
            sizes[id(each)] = 1 + sum(map(size, inner))
        return sizes[id(each)]

    if size(value) > MOST_VALUES:
        what = f"{name} stands for more than {MOST_VALUES} values"
        raise BadJobFile(what, remedy="use fewer aliases (*name), or several files")
    return value


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as json_error:
        if name.endswith(".json"):
            raise BadJobFile(f"{name} is not JSON: {json_error}", remedy="correct the file") from json_error
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as err:
        where = getattr(err, "problem_mark", None)
        place = f" at line {where.line + 1}, column {where.column + 1}" if where else ""
        what = f"{name} is neither JSON nor YAML{place}: {getattr(err, 'problem', None) or err}"
        raise BadJobFile(what, remedy="correct the file") from err


def _problems(prefix: str, job: Any) -> list[str]:
    """What the scheduler would say of it, but for the rules that only its operator knows."""
    if not isinstance(job, dict):
        return [f"{prefix or '/'}: must be an object, got {json.dumps(job, default=str)[:60]}"]
    found = spec_from_mapping(job)
    if isinstance(found, JobSpec):
        return []
    return [f"{(prefix + problem.path).rstrip('/') or '/'}: {problem.reason}" for problem in found]
