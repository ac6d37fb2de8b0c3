"""Option values: text to numbers with units, with usage errors that show the form expected.

Every start imports this module, and few use one of its types: a type imports what it checks by when it is used.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from mesos_gpu.cli.locate import normal_urls
from mesos_gpu.cli.reach.reach import Files, find_reach
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.cli.client import Client

_MIB: Final = {
    f"{unit}{end}": mib
    for unit, mib in {"m": 1, "g": 1024, "t": 1024 * 1024}.items()
    for end in ("", "i", "ib")
} | {"": 1}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+|\d+(?:\.\d+)?")


def mib_of(text: str) -> int:
    """An amount of memory as whole MiB: `2048`, `2048MiB`, `2GiB`, `1.5g`.

    Raises:
        ValueError: It is none; the message says what is one.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = _MIB.get(match[2]) if match else None
    if match and match[2] in ("mb", "gb", "tb"):
        raise ValueError(f"{text!r} is in decimal units; write {match[1]}{match[2][0].upper()}iB")
    if not match or unit is None:
        raise ValueError(f"{text!r} is not a memory size; write MiB, as 512, or a unit, as 2GiB")
    mib = float(match[1]) * unit
    if mib < 1 or mib != int(mib):
        raise ValueError(f"{text!r} is not a whole, positive number of MiB")
    return int(mib)


def seconds_of(text: str) -> float:
    """A time span as seconds: `90`, `90s`, `15m`, `2h`, `1d`, `1h30m`.

    Raises:
        ValueError: It is none; the message says what is one.
    """
    span = text.strip().lower()
    if not _DURATION.fullmatch(span):
        raise ValueError(f"{text!r} is not a time span; write seconds, as 90, or units, as 90s, 2h, 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", span))


class Memory(click.ParamType[int]):
    """An amount of memory as whole MiB."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`2048`, `2048MiB`, `2GiB`, `1.5g`; decimal units are refused, as 2GB is not 2048 MiB."""
        if isinstance(value, int):
            return value
        try:
            return mib_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class GpuNumber(click.ParamType[float]):
    """A number of GPUs, or a part of one."""

    name = "n"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        """`0`, `8`, `8.0`, `0.25`; parts are in thousandths."""
        from mesos_gpu.model.shares.units import milli_of, number_of

        text = str(value).strip()
        if re.fullmatch(r"\d{1,9}|[1-9]\d{0,8}\.0+", text, re.ASCII):
            return int(text.partition(".")[0])
        milli = milli_of(text)
        if milli is None:
            form = "a number of GPUs, as 0 or 8, nor a part of one in thousandths, as 0.25"
            several = re.fullmatch(r"0*[1-9]\d*\.\d+", text, re.ASCII)
            more = "; for a part of each of several: --gpu-compute and --gpu-memory" if several else ""
            self.fail(f"{text!r} is not {form}{more}", param, ctx)
        return number_of(milli)


class Duration(click.ParamType[float]):
    """A time span as seconds."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        """`zero`: 0 is allowed too, for "at once"."""
        self._zero = zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """`90`, `90s`, `15m`, `2h`, `1d`, `1h30m`."""
        if isinstance(value, int | float):
            return value
        try:
            seconds = seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0 and not self._zero:
            self.fail(f"{value!r} must be longer than nothing", param, ctx)
        return seconds


class Past(click.ParamType[float]):
    """A moment as seconds since the epoch."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """`2h`, `90s`: so long ago; `2027-03-01T08:00`, here unless it says where, as with Z or +01:00."""
        from datetime import datetime

        if isinstance(value, int | float):
            return value
        text = value.strip()
        if _DURATION.fullmatch(text.lower()):
            return time.time() - DURATION.convert(text, param, ctx)
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time; write how long ago, as 2h, or a moment, as 2027-03-01T08:00",
                param,
                ctx,
            )


class Pair(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "key=value"

    def __init__(self, key: str, form: str) -> None:
        """`key` is the pattern of a good key, `form` an example."""
        self._key, self._form = re.compile(key), form

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split at the first `=`; the value may be empty."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not self._key.fullmatch(key):
            self.fail(f"{value!r} is not of the form KEY=VALUE, as {self._form}", param, ctx)
        return key, rest


class Controls(click.ParamType[list[str]]):
    """Services that command the cluster, by commas."""

    name = "list"

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """`api`, `api,master`; the same as a list."""
        from mesos_gpu.model.jobs.permits import Control

        known = [control.value for control in Control]
        words = value if isinstance(value, list) else value.split(",")
        if not set(words) <= set(known):
            self.fail(f"{value!r} is not a list of {', '.join(known)}, as {','.join(known)}", param, ctx)
        return words


class ConstraintText(click.ParamType[list[str]]):
    """FIELD:OPERATOR[:VALUE], checked as the scheduler will; the value may have colons."""

    name = "field:operator[:value]"

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Read a constraint as Marathon writes it: two or three strings."""
        from mesos_gpu.wire.constraints import constraint_of

        if isinstance(value, list):
            return value
        words = value.split(":", 2)
        constraint = constraint_of(words)
        if isinstance(constraint, str):
            self.fail(
                f"{value!r} is not of the form FIELD:OPERATOR[:VALUE], as hostname:UNIQUE: it {constraint}"
            )
        return constraint.as_list()


class TopologyText(click.ParamType[dict[str, str]]):
    """required:LEVEL or preferred:LEVEL, checked as the scheduler does."""

    name = "required|preferred:level"

    def convert(
        self, value: str | dict[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        """Read the wish and the level as an object of a request."""
        from mesos_gpu.wire.constraints import topology_of, topology_to_json

        if isinstance(value, dict):
            return value
        wish, _, level = value.partition(":")
        topology = topology_of({wish: level})
        if isinstance(topology, str):
            self.fail(
                f"{value!r} is neither required:LEVEL nor preferred:LEVEL, as required:rack", param, ctx
            )
        return topology_to_json(topology)


class SecretText(click.ParamType[tuple[str, dict[str, str | None]]]):
    """NAME=PATH[:FILE], checked as the scheduler will."""

    name = "name=path[:file]"

    def convert(
        self,
        value: str | tuple[str, dict[str, str | None]],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, dict[str, str | None]]:
        """Split it; what was typed is not repeated where it is wrong, as it may be the secret itself."""
        from mesos_gpu.wire.secrets import secret_of

        if isinstance(value, tuple):
            return value
        secret = secret_of(value)
        if isinstance(secret, str):
            self.fail(secret, param, ctx)
        return secret


class VolumeText(click.ParamType["str | dict[str, Any]"]):
    """HOST:PATH[:ro], which the scheduler checks, or a named volume as name=NAME,path=PATH,size=SIZE."""

    name = "volume"

    def convert(
        self, value: str | dict[str, Any], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | dict[str, Any]:
        """Read a named volume as an object of a request; another value stays as it is."""
        from mesos_gpu.wire.mounts import is_option_named, named_option

        if isinstance(value, dict) or not is_option_named(value):
            return value
        try:
            volume = named_option(value)
            return volume | ({"size": mib_of(volume["size"])} if "size" in volume else {})
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Url(click.ParamType[str]):
    """The address of a scheduler, or of several of one cluster; `http://` may be left out."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read URLs, without slashes at their ends."""
        try:
            return normal_urls(value)
        except ValueError as err:
            self.fail(str(err), param, ctx)


class JobRef(click.ParamType[str]):
    """The id of a job, or the start of one, or some tasks of a job array; the scheduler resolves it."""

    name = "id"

    def __init__(self, *, active: bool = False) -> None:
        """`active`: complete only jobs that have not ended."""
        self._active = active

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what can be no id, before it becomes part of an address."""
        value = re.sub(r"\[[0-9,:%-]+\]$", "", value)  # as lists show arrays
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(\.[0-9][0-9,:-]*)?", value):
            self.fail(f"{value!r} is not a job's ID, as train-1a2b3c4d, nor the start of one", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Ids of jobs, newest first; none if the scheduler does not answer at once."""
        client = _quick_client(ctx)
        if client is None:
            return []
        with client:
            try:
                jobs = client.jobs(states=["active"] if self._active else [], limit=200)
            except MesosGpuError:
                return []  # a shell has no place for the message
        return [
            CompletionItem(job["id"], help=f"{job['state']} {job['name']}")
            for job in jobs
            if job["id"].startswith(incomplete)
        ]


class Ref(click.ParamType[str]):
    """What the scheduler knows: a GPU, a node, a driver's version."""

    def __init__(
        self,
        name: str,
        pattern: str | Callable[[], str],
        form: str,
        completed: Callable[["Client"], list[str]],
    ) -> None:
        """Describe it.

        Args:
            name: Name of the value in --help.
            pattern: Regular expression of what can be one, or a function that returns it.
            form: Words for what the pattern matches.
            completed: Function that lists those that there are.
        """
        self.name = name
        self._pattern, self._form, self._completed = pattern, form, completed

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what can be none, before it becomes part of an address."""
        pattern = self._pattern if isinstance(self._pattern, str) else self._pattern()
        if not re.fullmatch(pattern, value):
            self.fail(f"{value!r} is not {self._form}", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """All that begin so; none if the scheduler does not answer at once."""
        client = _quick_client(ctx)
        if client is None:
            return []
        with client:
            try:
                return [CompletionItem(n) for n in self._completed(client) if n.startswith(incomplete)]
            except MesosGpuError:
                return []  # a shell has no place for the message


class AppRef(Ref):
    """The id of an app."""

    def __init__(self) -> None:
        """Complete ids of Marathon's apps."""
        super().__init__("id", "", "", _apps)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Absolute: `shop/db` is `/shop/db`."""
        from mesos_gpu.wire.marathon.paths import ROOT, absolute, problem_of

        id = absolute(value.strip())
        if id == ROOT or problem_of(id):
            words = "small letters, digits, - and . between slashes"
            self.fail(f"{value!r} is not an app's id, as /shop/db: {words}", param, ctx)
        return id


class Version(click.ParamType[str]):
    """A version of an app."""

    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read a version as Marathon writes it."""
        from mesos_gpu.wire.marathon.moments import moment, stamp

        try:
            return stamp(moment(value))
        except (ValueError, OverflowError, OSError):
            form = "as 2015-02-03T12:30:00.000Z; `mesos-gpu app versions` lists those of an app"
            self.fail(f"{value!r} is no version, {form}", param, ctx)


class JobOrAppRef(JobRef):
    """The id of a job, or of an app, which begins with a slash."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id of an app has a slash in front."""
        return APP.convert(value, param, ctx) if value.startswith("/") else super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Apps after a slash, else jobs."""
        if incomplete.startswith("/"):
            return APP.shell_complete(ctx, param, incomplete)
        return super().shell_complete(ctx, param, incomplete)


def _apps(client: "Client") -> list[str]:
    from mesos_gpu.cli.marathon import Marathon

    return [app["id"] for app in Marathon(client).apps()]


def _deployments(client: "Client") -> list[str]:
    from mesos_gpu.cli.marathon import Marathon

    return [deployment["id"] for deployment in Marathon(client).deployments()]


def _quick_client(ctx: click.Context) -> "Client | None":
    from mesos_gpu.cli.client import Client

    chosen = next((choice for c in _upwards(ctx) if (choice := getattr(c.obj, "choice", None))), None)
    files = next((each for c in _upwards(ctx) if (each := getattr(c.obj, "files", None))), Files())
    try:
        return Client(find_reach(chosen, files), read_timeout_s=2)
    except MesosGpuError:
        return None


def _upwards(ctx: click.Context | None) -> list[click.Context]:
    return [] if ctx is None else [ctx, *_upwards(ctx.parent)]


def _driver() -> str:
    from mesos_gpu.model.nodes.driver import MINIMUM

    return MINIMUM.pattern


def _capability() -> str:
    from mesos_gpu.model.nodes.gpu import CAPABILITY

    return CAPABILITY.pattern


MEMORY: Final = Memory()
GPUS: Final = GpuNumber()
DURATION: Final = Duration()
PAST: Final = Past()
DEADLINE: Final = Duration(zero=True)
ENV: Final = Pair(r"[A-Za-z_][A-Za-z0-9_]*", "LANG=C")
LABEL: Final = Pair(r"[^=\s]+", "team=vision")
CONSTRAINT: Final = ConstraintText()
TOPOLOGY: Final = TopologyText()
CONTROLS: Final = Controls()
SECRET: Final = SecretText()
VOLUME: Final = VolumeText()
URL: Final = Url()
JOB: Final = JobRef()
ACTIVE_JOB: Final = JobRef(active=True)
APP: Final = AppRef()
VERSION: Final = Version()
JOB_OR_APP: Final = JobOrAppRef(active=True)
DEPLOYMENT: Final = Ref("id", _WORD, "a deployment's id, nor the start of one", _deployments)
GPU: Final = Ref(
    "gpu",
    rf"{_WORD}(?::[0-9]+)?",
    "a GPU: its UUID, the start of one, or HOST:INDEX",
    lambda client: [gpu["uuid"] for gpu in client.gpus()],
)
NODE: Final = Ref(
    "node",
    _WORD,
    "a node: its host name or the ID of its agent",
    lambda client: sorted({node["hostname"] for node in client.nodes()}),
)
DRIVER: Final = Ref(
    "version",
    _driver,
    "a driver version, as 535 or 535.104.05",
    lambda client: sorted(
        {v for node in client.nodes() if re.fullmatch(_driver(), v := node["driver_version"] or "")}
    ),
)
COMPUTE_CAPABILITY: Final = Ref(
    "version",
    _capability,
    "a compute capability, as 8.0",
    lambda client: sorted({known for gpu in client.gpus() if (known := gpu["compute_capability"])}),
)
