"""Job files: text to job requests, with every problem of every job at once."""

import json
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.job import JobSpec
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
    problems = [line for prefix, job in zip(prefixes, jobs, strict=True) for line in _problems(prefix, job)]
    if problems:
        lines = "\n".join(f"  {line}" for line in problems)
        raise BadJobFile(
            f"{name} was not submitted:\n{lines}", remedy="correct the file; docs/reference/rest.md"
        )
    return jobs


def parse(text: str, name: str) -> Any:
    """What a JSON or YAML text says.

    Raises:
        BadJobFile: It is neither, it is too large, or an object in it has a key twice.
    """
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
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in pairs:
            if key in mapping:
                raise _twice(name, key)
            mapping[key] = value
        return mapping

    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError as json_error:
        if name.endswith(".json"):
            raise BadJobFile(f"{name} is not JSON: {json_error}", remedy="correct the file") from json_error
    return _yaml(text, name)


def _twice(name: str, key: str, place: str = "") -> BadJobFile:
    return BadJobFile(f"{name} has {key!r} twice in one object{place}", remedy="leave one of them out")


def _yaml(text: str, name: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """A reader that refuses a key that stands twice in a mapping, as YAML does. What `<<` merges may be
        overridden."""

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                    raise _twice(name, key.value, _place(key.start_mark))
                seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None)
            return node

    try:
        return yaml.load(text, Loader)  # nosec B506 # Loader is a SafeLoader
    except yaml.YAMLError as err:
        place = _place(getattr(err, "problem_mark", None))
        what = f"{name} is neither JSON nor YAML{place}: {getattr(err, 'problem', None) or err}"
        raise BadJobFile(what, remedy="correct the file") from err


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _problems(prefix: str, job: Any) -> list[str]:
    """What the scheduler would say of it, but for the rules that only its operator knows."""
    if not isinstance(job, dict):
        return [f"{prefix or '/'}: must be an object, got {json.dumps(job, default=str)[:60]}"]
    checked = spec_from_mapping(job)
    if isinstance(checked, JobSpec):
        return []
    return [f"{(prefix + problem.path).rstrip('/') or '/'}: {problem.reason}" for problem in checked]
