"""Types of a job's fields in requests and answers, by the kinds that `JobSpec` declares."""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Final, NotRequired, Required, TypedDict

from mesos_gpu.api.spec.schema import Says, one_of, says
from mesos_gpu.model.arrays.indexes import FORM, HIGHEST, MAX, TEXT
from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.jobs.fields import LEVEL, MAX_RECEIVERS, RECEIVER, Field, Kind, entry
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.model.secret import ENV_NAME, FILE, FILE_FORM, MAX_SECRETS, SOURCE, SOURCE_FORM
from mesos_gpu.model.tasks.volume import VOLUME_NAME
from mesos_gpu.wire.checking import MAX_ENTRIES
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS, MAX_WORD
from mesos_gpu.wire.job_fields import CHECK_BOUNDS, MAX_ARTIFACTS, MAX_CHECKS, MAX_PORTS, PROTOCOLS
from mesos_gpu.wire.mounts import FORM as MOUNT_FORM
from mesos_gpu.wire.mounts import MAX as MAX_MOUNTS
from mesos_gpu.wire.mounts import MAX_MIB, NAME_FORM, PATH_FORM, SIZE, SIZE_FORM
from mesos_gpu.wire.mounts import SHAPE as MOUNT_SHAPE

Hint = Any  # a type, or one of `typing`'s forms
Mib = Annotated[int, says(minimum=0, description="MiB")]
Count = Annotated[int, says(minimum=0)]
GpuNumber = Annotated[int | float, says(minimum=0)]  # a number of them, or of shares of them


def like(pattern: re.Pattern[str], **more: Any) -> Says:
    """Return JSON Schema keywords for a string that must fully match a pattern."""
    return says(pattern=f"^(?:{pattern.pattern})$", **more)


def _within(key: str) -> Says:
    least, most = CHECK_BOUNDS[key]
    return says(minimum=least, maximum=most)


_TEXT: Final = re.compile(r"[^\x00]*")
_WORD: Final = re.compile(r"[^\x00]+")
_PATH: Final = re.compile(r"/[^\x00]*")
_PLACE: Final = re.compile(r"[^:\x00]+")
_COMMAND: Final = re.compile(r"[^\x00]*[^\x00\s][^\x00]*")
_OPERATORS: Final = ", ".join(Operator.__members__)

_Text = Annotated[str, like(_TEXT)]
_Command = Annotated[str, like(_COMMAND, description="for /bin/sh -c")]
_Receiver = Annotated[str, like(RECEIVER)]
_Model = Annotated[str, like(_COMMAND)]
_Uri = Annotated[str, like(_WORD)]
_Mount = Annotated[str, like(MOUNT_SHAPE, description=MOUNT_FORM)]
_EnvName = Annotated[str, like(ENV_NAME)]
_Source = Annotated[str, like(SOURCE, description=SOURCE_FORM)]
_Level = Annotated[str, like(LEVEL)]
_Index = Annotated[int, says(minimum=0, maximum=HIGHEST)]
_Indexes = Annotated[str, like(TEXT, description=FORM)]
_Port = Annotated[int, says(minimum=0, maximum=65535)]
_Part = Annotated[str, says(maxLength=MAX_WORD)] | float
ConstraintAsked = Annotated[
    list[_Part],
    says(minItems=2, maxItems=3, description=f"field, operator ({_OPERATORS}), and value"),
]


class Topology(TypedDict, total=False):
    """A constraint on the levels of the fabric, as one of two fields: required: all tasks in one group of the level;
    preferred: on as few groups as possible.
    """

    required: _Level
    preferred: _Level


class HealthCheckRequest(TypedDict, total=False):
    """A health check that runs beside the task. COMMAND needs a command; MESOS_HTTP(S) a path; all but COMMAND a
    port, unless the job has a port itself. Times are whole seconds.
    """

    protocol: Required[Annotated[str, one_of(*PROTOCOLS)]]
    command: _Command | None
    path: Annotated[str, like(_PATH)] | None
    port: Annotated[int, _within("port")] | None
    grace_period_s: Annotated[int, _within("grace_period_s"), says(default=300)] | None
    interval_s: Annotated[int, _within("interval_s"), says(default=60)] | None
    timeout_s: Annotated[int, _within("timeout_s"), says(default=20)] | None
    max_consecutive_failures: Annotated[int, _within("max_consecutive_failures"), says(default=3)] | None
    delay_s: Annotated[int, _within("delay_s"), says(default=15)] | None


class HealthCheck(TypedDict):
    """A health check of a job, as requested. Times are whole seconds."""

    protocol: Annotated[str, one_of(*PROTOCOLS)]
    command: str | None
    path: str | None
    port: int | None
    grace_period_s: int
    interval_s: int
    timeout_s: int
    max_consecutive_failures: int
    delay_s: int


class ArtifactRequest(TypedDict):
    """A file that is fetched into the sandbox before the command starts."""

    uri: _Uri
    extract: NotRequired[Annotated[bool, says(default=True)] | None]
    executable: NotRequired[Annotated[bool, says(default=False)] | None]
    cache: NotRequired[Annotated[bool, says(default=False)] | None]
    dest_path: NotRequired[Annotated[str, like(_WORD, description="below the sandbox")] | None]


class Artifact(TypedDict):
    """A file that a job fetches into its sandbox, as requested."""

    uri: str
    extract: bool
    executable: bool
    cache: bool
    dest_path: str | None


class SecretRequest(TypedDict):
    """A secret in an environment variable: with `file` the variable has the path of a file with the value; else the
    value itself.
    """

    source: _Source
    file: NotRequired[Annotated[str, like(FILE, description=FILE_FORM)] | None]


class Secret(TypedDict):
    """A secret of a job, as requested; its value is never shown."""

    source: str
    file: str | None


class VolumeRequest(TypedDict):
    """A named volume, which outlives the job. The first job with a new name sets its size."""

    name: Annotated[str, like(VOLUME_NAME, description=NAME_FORM)]
    path: Annotated[str, like(_PLACE, description=PATH_FORM)]
    size: NotRequired[
        Annotated[str, like(SIZE, description=SIZE_FORM)]
        | Annotated[int, says(minimum=1, maximum=MAX_MIB)]
        | None
    ]
    read_only: NotRequired[Annotated[bool, says(default=False)] | None]


class Volume(TypedDict):
    """A named volume of a job."""

    name: str
    path: str
    size: Annotated[str, says(description="size with unit, such as 10GiB")]
    read_only: bool


class ArrayCounts(TypedDict):
    """Numbers of tasks of a job array by progress."""

    tasks: Count
    waiting: Count
    running: Annotated[int, says(minimum=0, description="running or about to run")]
    finished: Count
    failed: Count
    killed: Count


def _text(kind: Any) -> Hint:
    return Annotated[str, like(kind.pattern)]


def _number(kind: Any) -> Hint:
    least = "exclusiveMinimum" if kind.above else "minimum"
    return Annotated[
        int if isinstance(kind, of.Whole) else float, says(**{least: kind.least, "maximum": kind.most})
    ]


def _gpus(kind: Any) -> Hint:
    part = Annotated[
        float,
        says(
            exclusiveMinimum=0, exclusiveMaximum=1, description="a part of one GPU, with up to three decimals"
        ),
    ]
    return _number(kind) | part


def _one_of(kind: Any) -> Hint:
    return Annotated[str, one_of(*kind.of)]


def _some_of(kind: Any) -> Hint:
    return list[_one_of(kind)]  # type: ignore[misc]


PLAIN_REQUESTED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    of.Text: _text,
    of.Number: _number,
    of.Flag: lambda _: bool,
    of.OneOf: _one_of,
    of.SomeOf: _some_of,
    of.Models: lambda _: (
        _Model | Annotated[list[_Model], says(description="ordered fallbacks", uniqueItems=True)]
    ),
    of.Receivers: lambda _: _Receiver | Annotated[list[_Receiver], says(maxItems=MAX_RECEIVERS)],
    of.Strings: lambda kind: Annotated[
        dict[Annotated[str, like(kind.key)], _Text], says(maxProperties=MAX_ENTRIES)
    ],
}
_REQUESTED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    **PLAIN_REQUESTED,
    of.Gpus: _gpus,
    of.Image: lambda _: str,
    of.Command: lambda _: _Command,
    of.Argv: lambda _: Annotated[list[_Text], says(minItems=1)],
    of.Args: lambda _: list[_Text],
    of.Constraints: lambda _: Annotated[list[ConstraintAsked], says(maxItems=MAX_CONSTRAINTS)],
    of.Level: lambda _: Annotated[Topology, says(minProperties=1, maxProperties=1)],
    of.Ports: lambda _: Annotated[list[_Port], says(maxItems=MAX_PORTS)],
    of.Artifacts: lambda _: Annotated[list[_Uri | ArtifactRequest], says(maxItems=MAX_ARTIFACTS)],
    of.Mounts: lambda _: Annotated[list[_Mount | VolumeRequest], says(maxItems=MAX_MOUNTS)],
    of.Secrets: lambda _: Annotated[dict[_EnvName, _Source | SecretRequest], says(maxProperties=MAX_SECRETS)],
    of.HealthChecks: lambda _: Annotated[list[HealthCheckRequest], says(maxItems=MAX_CHECKS)],
    of.ArrayIndexes: lambda _: _Indexes | Annotated[list[_Index], says(minItems=1, maxItems=MAX)],
}
PLAIN_ANSWERED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    of.Text: lambda _: str,
    of.Number: lambda _: float,
    of.Whole: lambda kind: Count if kind.least >= 0 else int,
    of.Flag: lambda _: bool,
    of.OneOf: _one_of,
    of.SomeOf: _some_of,
    of.Models: lambda _: list[str],
    of.Receivers: lambda _: list[str],
    of.Strings: lambda _: dict[str, str],
}
_ANSWERED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    **PLAIN_ANSWERED,
    of.Mib: lambda _: Mib,
    of.Gpus: lambda _: GpuNumber,
    of.Image: lambda _: str,
    of.Command: lambda _: str,
    of.Argv: lambda _: list[str] | None,
    of.Args: lambda _: list[str] | None,
    of.Constraints: lambda _: list[list[str]],
    of.Level: lambda _: Topology,
    of.Ports: lambda _: Annotated[list[int], says(description="requested ports; 0: any port")],
    of.Artifacts: lambda _: list[Artifact],
    of.Mounts: lambda _: list[str | Volume],
    of.Secrets: lambda _: dict[str, Secret],
    of.HealthChecks: lambda _: list[HealthCheck],
    of.ArrayIndexes: lambda _: Annotated[str, says(description=FORM)],
}


def requested() -> dict[str, Hint]:
    """Return the types of a request's fields by key; each may be null."""
    return {field.key: described(field, entry(_REQUESTED, field.kind)(field.kind)) | None for field in FIELDS}


def described(field: Field, hint: Hint) -> Hint:
    """Return a type with the description and the default of a field."""
    keywords: dict[str, Any] = {}
    if field.about:
        keywords["description"] = field.about
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    if isinstance(default, tuple):
        default = [item.value if isinstance(item, Enum) else item for item in default]
    if default not in (None, "", [], {}) and not field.decided_later:
        keywords["default"] = default
    return Annotated[hint, says(**keywords)] if keywords else hint


def answered() -> dict[str, Hint]:
    """Return the types of an answer's fields by key; null marks fields that do not apply."""
    hints = {field.key: (field, entry(_ANSWERED, field.kind)(field.kind)) for field in FIELDS}
    return {
        key: hint | None
        if (field.default is None and not field.filled) or (field.decided_later and field.needs)
        else hint
        for key, (field, hint) in hints.items()
    }
