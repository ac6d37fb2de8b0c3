"""Declarations of job fields: kind of value, bounds and unit, and their texts in help and documents.

`JobSpec` declares its fields with `asks`. Code that reads, writes, shows or documents them uses `FIELDS`, and has one
entry for each kind, in a table by the type of the kind:

    wire.job_fields       JSON to values and back
    wire.job_command      options of the command line that submits an equal job
    wire.marathon.gpu     JSON to values and back, for the object `gpu` of an app
    api.spec.job_fields   types of requests and answers, for the OpenAPI document
    cli.jobs.options      options of `mesos-gpu run` and `plan defrag`
    cli.jobs.show         lines of `mesos-gpu show`
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from mesos_gpu.model.secret import SOURCE, SOURCE_FORM

T = TypeVar("T")
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_STEP: Final = NAME.pattern
QUEUE: Final = re.compile(rf"(?=.{{1,255}}$){_STEP}(/{_STEP}){{0,7}}")
QUEUE_FORM: Final = "one to 8 names joined by '/', each 1 to 63 of a-z, 0-9, '.' and '-', as research/vision"
USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")  # useradd(8)
ENV_KEY: Final = re.compile(r"[^=\x00]+")
LABEL_KEY: Final = re.compile(r"[^\x00]+")
_DECLARED: Final = "declared"


class Kind:
    """Base of the kinds of values that a field may have."""


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A string that matches `pattern` as a whole; `form` describes it in messages, after "must be"."""

    pattern: re.Pattern[str]
    form: str


class Capability(Text):
    """A CUDA compute capability, as text."""


class DriverVersion(Text):
    """A version of NVIDIA's driver, as text."""


class SecretPath(Text):
    """A path in the store of secrets. Messages do not quote a wrong path, as it may be a secret value given by
    mistake."""


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A number from `least` to `most`; `form` describes it in messages, after "must be"; "" to describe the bounds."""

    least: float
    most: float
    form: str = ""
    above: bool = False  # whether `least` itself is excluded

    @property
    def words(self) -> str:
        """Description of valid values, after "must be"."""
        return self.form or f"a number from {self.least:g} to {self.most:g}"

    def holds(self, value: float) -> bool:
        """Return whether a number is within the bounds."""
        return self.least <= value <= self.most and not (self.above and value == self.least)


class Seconds(Number):
    """A duration in seconds."""


class Whole(Number):
    """An integer within bounds."""

    @property
    def words(self) -> str:
        """Description of valid values, after "must be"."""
        return self.form or f"an integer from {self.least} to {self.most}"


class Mib(Whole):
    """An amount of memory or disk, in MiB."""


class Gpus(Whole):
    """A number of GPUs, or a fraction of one in thousandths."""

    @property
    def words(self) -> str:
        """Description of valid values, after "must be"."""
        return (
            f"an integer from {self.least} to {self.most}, "
            "or a fraction of one GPU with at most three decimals, as 0.25"
        )


class Flag(Kind):
    """True or false, as a boolean."""


@dataclass(frozen=True, slots=True)
class OneOf(Kind):
    """A value of an enum whose values are strings."""

    of: type[Enum]


class SomeOf(OneOf):
    """A list of values of an enum, each at most once."""


class Image(Kind):
    """A reference to a Docker image."""


class Command(Kind):
    """A command line for /bin/sh -c."""


class Argv(Kind):
    """A program and its arguments."""


class Args(Kind):
    """Arguments for the entrypoint of an image."""


class Models(Kind):
    """GPU models, the first choice first; a request may give a single one as a string."""


@dataclass(frozen=True, slots=True)
class Strings(Kind):
    """An object of strings; `key` matches its keys, `without` describes what these must not contain."""

    key: re.Pattern[str]
    without: str


class Variables(Strings):
    """Environment variables, whose values may be secrets."""


class Constraints(Kind):
    """A list of constraints as in Marathon, each a list of two or three words."""


class Level(Kind):
    """A level of the network fabric, required or preferred."""


class Ports(Kind):
    """Ports of the host; 0 for any."""


class Artifacts(Kind):
    """Files to fetch into the sandbox."""


class Mounts(Kind):
    """Paths of the host with their places in the file system of the task."""


class Secrets(Kind):
    """Secrets by names of environment variables; values are never shown."""


class Receivers(Kind):
    """Receivers of notifications: names of webhooks, or URLs."""


class ArrayIndexes(Kind):
    """Indexes of a job array, as parsed by `model.arrays.indexes`."""


class HealthChecks(Kind):
    """Health checks that the executor makes."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of `mesos-gpu run`.

    Attributes:
        flag: Option as it is typed, such as "--mem".
        help: Help text, without a full stop.
        default: Description of the default in help texts; None for the field's default value; "" for no description.
        metavar: Placeholder of the value; None for that of the kind.
    """

    flag: str
    help: str
    default: str | None = None
    metavar: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """Declaration of a job field.

    Attributes:
        name: Attribute of `JobSpec`.
        default: Value if a request leaves it out; None for `name`, which is derived from the command.
        kind: Kind of the values.
        key: Name in JSON.
        about: Description in the OpenAPI document, besides kind and bounds; "" for no description.
        option: Option of `mesos-gpu run`; None if only JSON has the field.
        shown: Label of its line in `mesos-gpu show`; "" if another field's line includes it.
        needs: Field without which it may not be set; "" if it needs no other.
        of_app: Name in the object `gpu` of an app, whose value is passed on to instances; "" if apps cannot set it
            there.
        places: Whether it affects where a job may run, so that `mesos-gpu plan defrag` has it too.
        decided_later: Whether the scheduler, not `default`, decides if a request leaves it out; for a field that needs
            another one, only if that is set.
        filled: Whether admission sets a value if a request leaves it out.
    """

    name: str
    default: Any
    kind: Kind
    key: str
    about: str = ""
    option: Option | None = None
    shown: str = ""
    needs: str = ""
    of_app: str = ""
    places: bool = False
    decided_later: bool = False
    filled: bool = False

    def standard(self) -> Any:
        """Return the default value; a new dict if it is one."""
        return dict(self.default) if isinstance(self.default, dict) else self.default


def asks(default: Any, kind: Kind, **more: Any) -> Any:
    """Declare a dataclass field that requests may set; `more` as in `Field`, with `key` defaulting to the name."""
    declared = {_DECLARED: {"kind": kind, **more}}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


def asks_first(kind: Kind, **more: Any) -> Mapping[str, Any]:
    """Return the metadata that `asks` would set, for a dataclass field without a default."""
    return {_DECLARED: {"kind": kind, **more}}


def declared(kind: type, order: tuple[str, ...]) -> tuple[Field, ...]:
    """Return the declared fields of a dataclass: first those named in `order`, then the others as they are declared."""
    by_name = {
        field.name: _field_of(field) for field in dataclasses.fields(kind) if _DECLARED in field.metadata
    }
    return tuple(by_name[name] for name in dict.fromkeys((*order, *by_name)))


def _field_of(field: "dataclasses.Field[Any]") -> Field:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    more = {"key": field.name, **field.metadata[_DECLARED]}
    return Field(field.name, None if default is dataclasses.MISSING else default, **more)


def entry(table: Mapping[type[Kind], T], kind: Kind) -> T:
    """Return the entry of a table for a kind, or for the nearest base class of the kind.

    Raises:
        KeyError: The table lacks the kind.
    """
    for base in type(kind).__mro__:
        if base in table:
            return table[base]
    raise KeyError(f"no entry for fields of kind {type(kind).__name__}")


CPU_LIMIT: Final[Any] = asks(
    None,
    Number(0.01, 100_000, "a number from 0.01 to 100000"),  # lowest limit of the kernel
    about="CPUs that a task may use at most, also while others are idle; null for no limit",
    option=Option(
        "--cpu-limit", "Most CPUs that it may use, also while others are idle, as 2", "no limit", metavar="N"
    ),
    shown="cpu limit",
)
#: Receivers of notifications about a job.
MAX_RECEIVERS: Final = 8
RECEIVER: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?|https?://[!-~]{1,992}")
RECEIVER_FORM: Final = "the name of a webhook, or a URL that begins with https://"
NOTIFY: Final[Any] = asks(
    (),
    Receivers(),
    about="receivers of a message when it ends or gets notice: names of webhooks, or URLs that the operator allows",
    option=Option(
        "--notify", "Webhook or URL that gets a message when it ends; may be repeated", metavar="NAME|URL"
    ),
    shown="notify",
)
#: Indexes of a job array.
ARRAY: Final[Any] = asks(
    None,
    ArrayIndexes(),
    about="one job for each of these indexes; with %N at most N of them at once",
    option=Option(
        "--array", "One job for each of these indexes; 0-99%8 runs at most 8 at once", metavar="INDEXES"
    ),
    shown="array",
)
#: Booking to whose GPUs a job is restricted.
BOOKING: Final[Any] = asks(
    None,
    Text(re.compile(r"[a-z0-9]([a-z0-9.-]{0,78}[a-z0-9])?"), "the name or the id of a booking"),
    about="runs only on GPUs of this booking, while the booking is active",
    option=Option("--booking", "Booking to whose GPUs it is restricted", "any GPUs", metavar="NAME"),
    shown="booking",
)
#: Network proximity of the tasks of a job.
LEVEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
LEVEL_FORM: Final = "the name of a level, 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-', as rack"
TOPOLOGY: Final[Any] = asks(
    None,
    Level(),
    about="level of the network fabric: all tasks in one group of it, or in as few groups as fit",
    option=Option(
        "--topology", "Network level whose groups its tasks share, required or preferred, as required:rack"
    ),
    shown="topology",
    of_app="topology",
    places=True,
)
SEGMENT: Final[Any] = asks(
    None,
    Whole(1, 1024),
    about="number of tasks with consecutive ranks that stay in one group of the level; must divide tasks",
    option=Option(
        "--segment", "Number of tasks with consecutive ranks that stay in one group of --topology", ""
    ),
    shown="segment",
    needs="topology",
)
#: Login of a job to the registry of its image.
IMAGE_SECRET: Final[Any] = asks(
    None,
    SecretPath(SOURCE, SOURCE_FORM),
    about="secret with logins for the registry of its image, as docker login writes them; null for that of its queue",
    option=Option(
        "--image-secret",
        "Secret with the login for the image's registry",
        "that of its queue",
        metavar="PATH",
    ),
    shown="image secret",
    needs="image",
)
