"""Command-line options of job requests, generated from the fields that `JobSpec` declares."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mesos_gpu.cli.types import (
    COMPUTE_CAPABILITY,
    CONSTRAINT,
    CONTROLS,
    DRIVER,
    DURATION,
    ENV,
    GPUS,
    LABEL,
    MEMORY,
    SECRET,
    TOPOLOGY,
    VOLUME,
)
from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.fields import Field, Kind, Option, entry
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.scheduler.options.parse import NumberRange

_PREFIX: Final = "asked_"  # prefix of parameter names, so that fields do not collide with other parameters
_AGAIN: Final = {"multiple": True}


def _choice(kind: Any) -> dict[str, Any]:
    return {"type": click.Choice([choice.value for choice in kind.of])}


#: Arguments of click.option for each kind of field. Plain text is the default; so are texts and images.
_TOLD: Final[Mapping[type[Kind], Callable[[Any], Mapping[str, Any]]]] = {
    of.Text: lambda _: {},
    of.Capability: lambda _: {"type": COMPUTE_CAPABILITY},
    of.DriverVersion: lambda _: {"type": DRIVER},
    of.Number: lambda kind: {"type": NumberRange(kind.least, kind.most, min_open=kind.above)},
    of.Seconds: lambda _: {"type": DURATION},
    of.Whole: lambda kind: {"type": click.IntRange(kind.least, kind.most), "metavar": "N"},
    of.Mib: lambda _: {"type": MEMORY, "metavar": None},
    of.Gpus: lambda _: {"type": GPUS, "metavar": None},
    of.Flag: lambda _: {"is_flag": True},
    of.OneOf: _choice,
    of.SomeOf: lambda _: {"type": CONTROLS, "metavar": "LIST"},
    of.Image: lambda _: {"metavar": "IMAGE"},
    of.Models: lambda _: {"metavar": "MODEL", **_AGAIN},
    of.Receivers: lambda _: _AGAIN,
    of.ArrayIndexes: lambda _: {},
    of.Strings: lambda _: {"type": LABEL, **_AGAIN},
    of.Variables: lambda _: {"type": ENV, **_AGAIN},
    of.Constraints: lambda _: {"type": CONSTRAINT, **_AGAIN},
    of.Level: lambda _: {"type": TOPOLOGY},
    of.Ports: lambda _: {"type": click.IntRange(0, 65535), "metavar": "N", **_AGAIN},
    of.Artifacts: lambda _: {"metavar": "URI", **_AGAIN},
    of.Mounts: lambda _: {"type": VOLUME, **_AGAIN},
    of.Secrets: lambda _: {"type": SECRET, **_AGAIN},
}


def job_options(fields: Iterable[Field] = FIELDS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an option for each field that has one, in their order."""
    with_options = [(field, field.option) for field in fields if field.option is not None]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for field, option in reversed(with_options):
            command = _option(field, option)(command)
        return command

    return decorate


upload_option: Final = click.option(
    "--upload",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    is_flag=False,
    flag_value=".",
    metavar="[DIR]",
    help="Upload a directory, by default the current one, into the job's directory. Files that .gitignore "
    "and .mesosgpuignore name are left out.",
)


dry_run_option: Final = click.option(
    "--dry-run",
    is_flag=True,
    help="Submit nothing: show whether the job fits now, what it would wait for, or why it can never run.",
)


def _option(field: Field, option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    arguments = dict(entry(_TOLD, field.kind)(field.kind))
    if option.metavar is not None:
        arguments["metavar"] = option.metavar
    return click.option(option.flag, _PREFIX + field.key, help=_help(field, option), **arguments)


def _help(field: Field, option: Option) -> str:
    default = _in_words(field.default) if option.default is None else option.default
    return f"{option.help}; default: {default}." if default else f"{option.help}."


def _in_words(default: Any) -> str:
    """Return a default as text; "" if it need not be shown."""
    if default is None or isinstance(default, bool | tuple | dict):
        return ""
    return (
        default.value
        if isinstance(default, Enum)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )


def request_of(cmd: tuple[str, ...], options: Mapping[str, Any], *, shell: bool = False) -> dict[str, Any]:
    """Return a job request from a command and options of `job_options`; with `shell` the command is one shell line.

    Fields without an option given are left to the scheduler's defaults.
    """
    request = {"command": " ".join(cmd)} if shell else {"argv": list(cmd)} if cmd else {}
    for field in FIELDS:
        value = _sent(field, options.get(_PREFIX + field.key))
        if value is not None:
            request[field.key] = value
    return request


def _sent(field: Field, value: Any) -> Any:
    if value is False or value == ():
        return None
    if isinstance(value, tuple):
        return dict(value) if isinstance(field.kind, of.Strings | of.Secrets) else list(value)
    return value


@contextmanager
def by_options() -> Iterator[None]:
    """Name options instead of the interface's fields in a refusal that is raised in the body.

    A problem of an option that was not given names none.
    """
    from mesos_gpu.cli.client import Refused

    try:
        yield
    except Refused as error:
        error.what = _in_flags(error.what)
        error.problems = tuple(
            {
                "path": _flag(problem["path"]),
                "reason": _in_flags(problem["reason"]),
            }
            for problem in error.problems
        )
        if _FOR_PROGRAMS in error.remedy:
            error.remedy = f"correct the options; see: {click.get_current_context().command_path} --help"
        raise


_FOR_PROGRAMS: Final = "/v1/openapi.json"  # part of the remedy for a request with wrong fields
_FLAGS: Final = {field.key: field.option.flag for field in FIELDS if field.option is not None}
#: Field names that are no plain words ("GPUs" is one, "gpus" is a field), since reasons may name other fields.
_NAMES: Final = re.compile(rf"\b({'|'.join(key for key in _FLAGS if '_' in key or key == 'gpus')})\b")


def _flag(path: str) -> str:
    """Return the option of a field, with the number of its item: /volumes/0 is --volume 1, and /volumes/0/size is
    --volume 1 size; "" if the option was not given.
    """
    field, slash, rest = path.removeprefix("/").partition("/")
    flag = _FLAGS.get(field)
    if flag is None:
        return path
    source = click.get_current_context().get_parameter_source(_PREFIX + field)
    if source is ParameterSource.DEFAULT:
        return ""
    number, _, more = rest.partition("/")
    words = (flag, str(int(number) + 1) if number.isdecimal() else number, more)
    return " ".join(filter(None, words)) if slash else flag


def _in_flags(reason: str) -> str:
    return _NAMES.sub(lambda match: _FLAGS[match[1]], reason)
