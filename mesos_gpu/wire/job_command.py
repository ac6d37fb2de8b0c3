"""The `mesos-gpu run` command line that submits a given job; pure functions."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.fields import Kind, entry
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.wire.job_fields import write
from mesos_gpu.wire.jobs import default_name
from mesos_gpu.wire.mounts import option_of, size_text

_RUN: Final = "mesos-gpu run"
_BY_FILE: Final = "write it in a file for mesos-gpu submit"
_REASONS: Final[Mapping[str, str]] = {
    "upload": "the job has only a digest of its code: give the directory of the code with --upload DIR"
}
_WHAT_RUNS: Final = ("command", "argv")
_STANDARD: Final = write(JobSpec(name="-"))
_FETCHED: Final = {"extract": True, "executable": False, "cache": False, "dest_path": None}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL: Final = re.compile(r"[^=\s]+")


@dataclass(frozen=True, slots=True)
class JobCommand:
    """A command line that submits a job.

    Attributes:
        text: The line, for a POSIX shell.
        left_out: Reasons and remedies by the JSON names of the fields that are not in the line.
        request: Body of the request that submits the job.
    """

    text: str
    left_out: Mapping[str, str]
    request: Mapping[str, Any]


def command_of(spec: JobSpec, *, show_env: bool) -> JobCommand:
    """Return the command line that submits a job with these fields.

    Args:
        spec: Fields of the job.
        show_env: Whether the line and the request have the values of the job's environment. A line without them takes
            each value from the variable of that name in the shell; the shell refuses the line if it lacks one.
    """
    words, left_out = [_RUN], dict[str, str]()
    requested = dict(_asked(spec, write(spec, show_env=show_env)))
    for field in FIELDS:
        key, value = field.key, requested.get(field.key)
        if value is None or key in _WHAT_RUNS:
            continue
        if field.option is None:
            left_out[key] = _REASONS.get(key, f"mesos-gpu run has no option for it: {_BY_FILE}")
        elif isinstance(field.kind, of.Flag):
            words.append(field.option.flag)
        elif (texts := list(entry(_TEXTS, field.kind)(value))) and None not in texts:
            hides = isinstance(field.kind, of.Variables) and not show_env
            quoted = (_from_shell(text) if hides else shlex.quote(text) for text in texts if text is not None)
            words += [f"{field.option.flag} {text}" for text in quoted]
        else:
            left_out[key] = f"an option cannot hold this value: {_BY_FILE}"
    if spec.command is not None:
        words.append(f"--shell -- {shlex.quote(spec.command)}")
    elif spec.argv:
        words.append(f"-- {shlex.join(spec.argv)}")
    return JobCommand(" ".join(words), left_out, requested)


def _asked(spec: JobSpec, written: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a request must set to get the values of a job."""
    for field in FIELDS:
        key, value = field.key, written[field.key]
        standard = _STANDARD[key]
        if key == "name":
            standard = default_name(spec.command, spec.argv, spec.image)
        elif field.decided_later and (spec.gpus or field.needs):
            standard = None
        if value is not None and value != standard:
            yield key, value


def _from_shell(pair: str) -> str:
    name = pair.partition("=")[0]
    return f'{name}="${{{name}?}}"'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{Decimal(repr(value)):f}"


def _pairs(name: re.Pattern[str]) -> Callable[[Mapping[str, str]], Iterable[str | None]]:
    """Return a function that writes names and values as NAME=VALUE; it gives None for a name that does not match."""

    def words(pairs: Mapping[str, str]) -> Iterable[str | None]:
        return (f"{key}={value}" if name.fullmatch(key) else None for key, value in pairs.items())

    return words


def _constraints(constraints: Iterable[list[str]]) -> Iterator[str | None]:
    for words in constraints:
        text = ":".join(words)
        yield text if text.split(":", 2) == words else None


def _secrets(secrets: Mapping[str, Mapping[str, str | None]]) -> Iterator[str]:
    for name, use in secrets.items():
        yield f"{name}={use['source']}" + (f":{use['file']}" if use["file"] else "")


def _artifacts(artifacts: Iterable[Mapping[str, Any]]) -> Iterator[str | None]:
    for artifact in artifacts:
        yield artifact["uri"] if {key: artifact[key] for key in _FETCHED} == _FETCHED else None


#: Option values by kind of field, with None for a value that an option cannot hold. Flags have no values.
_TEXTS: Final[Mapping[type[Kind], Callable[[Any], Iterable[str | None]]]] = {
    of.Text: lambda text: [text],
    of.Image: lambda image: [image],
    of.ArrayIndexes: lambda indexes: [indexes],
    of.Number: lambda number: [_number(number)],
    of.Seconds: lambda seconds: [f"{_number(seconds)}s"],
    of.Mib: lambda mib: [size_text(mib)],
    of.OneOf: lambda choice: [choice],
    of.SomeOf: lambda choices: [",".join(choices)],
    of.Models: lambda models: models,
    of.Receivers: lambda receivers: receivers,
    of.Strings: _pairs(_LABEL),
    of.Variables: _pairs(_VARIABLE),
    of.Constraints: _constraints,
    of.Level: lambda level: [":".join(level_part) for level_part in level.items()],
    of.Ports: lambda ports: map(str, ports),
    of.Artifacts: _artifacts,
    of.Mounts: lambda volumes: map(option_of, volumes),
    of.Secrets: _secrets,
}
