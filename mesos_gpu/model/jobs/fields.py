"""How a field of a job is declared: the kind of its value, its bounds and unit, what help and documents say of it.

`JobSpec` declares its fields with `asks`; who reads, writes, shows or documents them goes through `FIELDS` and has one
entry for each kind, in a table by the kind's type:

    wire.job_fields       JSON to values and back
    wire.job_command      options of the command line that submits a job again
    wire.marathon.gpu     the same of an app's object `gpu`
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
    """What values a field may have."""


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A string, all of which `pattern` must match; `form` says it in words, after "must be"."""

    pattern: re.Pattern[str]
    form: str


class Capability(Text):
    """A CUDA compute capability."""


class DriverVersion(Text):
    """A version of NVIDIA's driver."""


class SecretPath(Text):
    """A path in the store of secrets. Messages do not repeat a wrong one: it may be a value, given by mistake."""


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A number from `least` to `most`; `form` says it in words, after "must be"; "": as the bounds say."""

    least: float
    most: float
    form: str = ""
    above: bool = False  # `least` itself is too little

    @property
    def words(self) -> str:
        """What a value must be."""
        return self.form or f"a number from {self.least:g} to {self.most:g}"

    def holds(self, value: float) -> bool:
        """Whether a number is within the bounds."""
        return self.least <= value <= self.most and not (self.above and value == self.least)


class Seconds(Number):
    """A span of time."""


class Whole(Number):
    """An integer."""

    @property
    def words(self) -> str:
        """What a value must be."""
        return self.form or f"an integer from {self.least} to {self.most}"


class Mib(Whole):
    """An amount of memory or disk, in MiB."""


class Gpus(Whole):
    """A number of GPUs, or a part of one, in thousandths."""

    @property
    def words(self) -> str:
        """What a value must be."""
        return f"an integer from {self.least} to {self.most}, or a part of one GPU in thousandths, as 0.25"


class Flag(Kind):
    """True or false."""


@dataclass(frozen=True, slots=True)
class OneOf(Kind):
    """A value of an enum whose values are strings."""

    of: type[Enum]


class SomeOf(OneOf):
    """A list of such values, each once."""


class Image(Kind):
    """A reference of a Docker image."""


class Command(Kind):
    """A line for /bin/sh -c."""


class Argv(Kind):
    """A program and its arguments."""


class Args(Kind):
    """Arguments of an image's entrypoint."""


class Models(Kind):
    """Models of GPUs, the best first; a request may have one alone."""


@dataclass(frozen=True, slots=True)
class Strings(Kind):
    """An object of strings; `key` matches its names, `without` says in words what these must not have."""

    key: re.Pattern[str]
    without: str


class Variables(Strings):
    """Environment variables, whose values may be secrets."""


class Constraints(Kind):
    """Marathon's constraints, each a list of two or three words."""


class Level(Kind):
    """A level of the fabric, required or preferred."""


class Ports(Kind):
    """Ports of the host; 0: any."""


class Artifacts(Kind):
    """What is fetched into the sandbox."""


class Mounts(Kind):
    """Paths of the host, and where the task has them."""


class Secrets(Kind):
    """Secrets by the names of environment variables; a value is never told."""


class Receivers(Kind):
    """Who is told what happens: webhooks by their names, or URLs."""


class ArrayIndexes(Kind):
    """Indexes of a job array, as `model.arrays.indexes` reads them."""


class HealthChecks(Kind):
    """Checks that the executor makes."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of `mesos-gpu run`.

    Attributes:
        flag: As it is typed, "--mem".
        help: Its line, without a full stop.
        default: What holds without it, in words; None: as the field's default; "": nothing is said.
        metavar: What its value is called; None: as values of its kind are.
    """

    flag: str
    help: str
    default: str | None = None
    metavar: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a job.

    Attributes:
        name: The attribute of `JobSpec`.
        default: Its value where nothing is asked for; None for `name`, which follows from the command.
        kind: What values it may have.
        key: Its name in JSON.
        about: What the OpenAPI document says of it, beside its kind and bounds; "": nothing.
        option: The option of `mesos-gpu run`; None: only JSON has it.
        shown: The label of its line in `mesos-gpu show`; "": it is told with another field.
        needs: The field without which it may not be asked for; "": none.
        of_app: Its name in an app's object `gpu`, from where it is passed on to the app's instances; "": an app cannot
            ask for it there.
        places: Whether it says where a job may go, so that `mesos-gpu plan defrag` has it too.
        decided_later: Whether the scheduler decides for requests that leave it out, not `default`: of a field that
            needs another one, only with that.
        filled: Whether a request that leaves it out is given a value when it is taken in.
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
        """The default, as a value of its own."""
        return dict(self.default) if isinstance(self.default, dict) else self.default


def asks(default: Any, kind: Kind, **more: Any) -> Any:
    """A field of a dataclass that a request may ask for; `more` as of `Field`, where `key` is the name if left out."""
    declared = {_DECLARED: {"kind": kind, **more}}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


def asks_first(kind: Kind, **more: Any) -> Mapping[str, Any]:
    """What `asks` declares, as metadata of a field without a default."""
    return {_DECLARED: {"kind": kind, **more}}


def declared(kind: type, order: tuple[str, ...]) -> tuple[Field, ...]:
    """The fields that a dataclass declares: those that `order` names, and then the others as they stand there."""
    by_name = {each.name: _field_of(each) for each in dataclasses.fields(kind) if _DECLARED in each.metadata}
    return tuple(by_name[name] for name in dict.fromkeys((*order, *by_name)))


def _field_of(field: "dataclasses.Field[Any]") -> Field:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    more = {"key": field.name, **field.metadata[_DECLARED]}
    return Field(field.name, None if default is dataclasses.MISSING else default, **more)


def entry(table: Mapping[type[Kind], T], kind: Kind) -> T:
    """What a table has for a kind, or for the nearest one that it is a special case of.

    Raises:
        KeyError: The table lacks the kind.
    """
    for each in type(kind).__mro__:
        if each in table:
            return table[each]
    raise KeyError(f"no entry for fields of kind {type(kind).__name__}")


CPU_LIMIT: Final[Any] = asks(
    None,
    Number(0.01, 100_000, "a number from 0.01 to 100000"),  # the least that the kernel limits to
    about="the most that a task uses, also while others are idle; null: as many as are idle",
    option=Option(
        "--cpu-limit", "Most CPUs, also while others are idle, as 2", "as many as are idle", metavar="N"
    ),
    shown="cpu limit",
)
#: Who is told how a job goes.
MAX_RECEIVERS: Final = 8
RECEIVER: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?|https?://[!-~]{1,992}")
RECEIVER_FORM: Final = "the name of a webhook, or a URL that begins with https://"
NOTIFY: Final[Any] = asks(
    (),
    Receivers(),
    about="told when it ends or gets notice: webhooks by name, or URLs as the operator allows",
    option=Option(
        "--notify", "Webhook, or URL, that is told when it ends; may be repeated", metavar="NAME|URL"
    ),
    shown="notify",
)
#: Of a job array.
ARRAY: Final[Any] = asks(
    None,
    ArrayIndexes(),
    about="one job for each of these indexes; %N: so many of them at once",
    option=Option("--array", "One job for each of these indexes, as 0-99%8: 8 at once", metavar="INDEXES"),
    shown="array",
)
#: Of a booking, by whose GPUs alone it runs.
BOOKING: Final[Any] = asks(
    None,
    Text(re.compile(r"[a-z0-9]([a-z0-9.-]{0,78}[a-z0-9])?"), "the name or the id of a booking"),
    about="it runs on the GPUs of that booking alone, while that is active",
    option=Option("--booking", "Booking on whose GPUs alone it runs", "on any GPUs", metavar="NAME"),
    shown="booking",
)
#: Of a job whose tasks are near each other in the fabric.
LEVEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
LEVEL_FORM: Final = "the name of a level, 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-', as rack"
TOPOLOGY: Final[Any] = asks(
    None,
    Level(),
    about="a level of the fabric: all tasks in one group of it, or on as few groups as fit",
    option=Option(
        "--topology", "Level of the fabric for its tasks: one group, or as few as fit; as required:rack"
    ),
    shown="topology",
    of_app="topology",
    places=True,
)
SEGMENT: Final[Any] = asks(
    None,
    Whole(1, 1024),
    about="tasks with consecutive ranks that stay together in one group of the level; it divides tasks",
    option=Option("--segment", "Tasks with consecutive ranks in one group of --topology", ""),
    shown="segment",
    needs="topology",
)
#: Of a job whose image a registry shows to some only.
IMAGE_SECRET: Final[Any] = asks(
    None,
    SecretPath(SOURCE, SOURCE_FORM),
    about="secret with the logins for the registry of its image, as docker login writes them; null: as its queue gives",
    option=Option(
        "--image-secret",
        "Secret with the login for the image's registry",
        "as its queue gives",
        metavar="PATH",
    ),
    shown="image secret",
    needs="image",
)
