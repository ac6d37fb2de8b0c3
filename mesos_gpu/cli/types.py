"""Parameter types of options: text with units to numbers, with errors that show the expected form.

Every start imports this module and uses few of its types, so types import their checks lazily.
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
    """Parse an amount of memory into MiB: `2048`, `2048MiB`, `2GiB`, `1.5g`.

    Raises:
        ValueError: The text is not a whole amount of MiB; the message shows the form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = _MIB.get(match[2]) if match else None
    if match and match[2] in ("mb", "gb", "tb"):
        raise ValueError(f"{text!r} is in decimal units; write {match[1]}{match[2][0].upper()}iB")
    if not match or unit is None:
        raise ValueError(f"{text!r} is not a memory size; write MiB, such as 512, or a unit, such as 2GiB")
    mib = float(match[1]) * unit
    if mib < 1 or mib != int(mib):
        raise ValueError(f"{text!r} is not a whole, positive number of MiB")
    return int(mib)


def seconds_of(text: str) -> float:
    """Parse a time span into seconds: `90`, `90s`, `15m`, `2h`, `1d`, `1h30m`.

    Raises:
        ValueError: The text is not a time span; the message shows the form.
    """
    span = text.strip().lower()
    if not _DURATION.fullmatch(span):
        raise ValueError(
            f"{text!r} is not a time span; write seconds, such as 90, or units, such as 90s, 2h, 1h30m"
        )
    return sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", span))


class Memory(click.ParamType[int]):
    """Amount of memory in whole MiB."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse `2048`, `2048MiB`, `2GiB` or `1.5g`; decimal units are refused, since 2GB is not 2048 MiB."""
        if isinstance(value, int):
            return value
        try:
            return mib_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class GpuNumber(click.ParamType[float]):
    """Number of GPUs, or a part of one."""

    name = "n"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        """Parse `0`, `8`, `8.0` or `0.25`; parts are in thousandths."""
        from mesos_gpu.model.shares.units import milli_of, number_of

        text = str(value).strip()
        if re.fullmatch(r"\d{1,9}|[1-9]\d{0,8}\.0+", text, re.ASCII):
            return int(text.partition(".")[0])
        milli = milli_of(text)
        if milli is None:
            form = "a number of GPUs, such as 0 or 8, or a part of one in thousandths, such as 0.25"
            several = re.fullmatch(r"0*[1-9]\d*\.\d+", text, re.ASCII)
            more = "; for a part of each of several: --gpu-compute and --gpu-memory" if several else ""
            self.fail(f"{text!r} is not {form}{more}", param, ctx)
        return number_of(milli)


class Duration(click.ParamType[float]):
    """Time span in seconds; 0 is allowed only with `zero`."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse `90`, `90s`, `15m`, `2h`, `1d` or `1h30m`."""
        if isinstance(value, int | float):
            return value
        try:
            seconds = seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0 and not self._zero:
            self.fail(f"{value!r} must be longer than 0", param, ctx)
        return seconds


class Past(click.ParamType[float]):
    """Time in the past, in seconds since the epoch."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse an age such as `2h` or `90s`, or a time such as `2027-03-01T08:00`, local unless it has Z or an
        offset."""
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
                f"{value!r} is not a time; write an age such as 2h, or a time such as 2027-03-01T08:00",
                param,
                ctx,
            )


class Pair(click.ParamType[tuple[str, str]]):
    """KEY=VALUE.

    Args:
        key: Pattern of valid keys.
        form: Example for errors.
    """

    name = "key=value"

    def __init__(self, key: str, form: str) -> None:
        self._key, self._form = re.compile(key), form

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split at the first `=`; the value may be empty."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not self._key.fullmatch(key):
            self.fail(f"{value!r} is not KEY=VALUE, for example {self._form}", param, ctx)
        return key, rest


class Controls(click.ParamType[list[str]]):
    """Comma-separated services that control the cluster."""

    name = "list"

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Parse `api` or `api,master`; a list is returned unchanged."""
        from mesos_gpu.model.jobs.permits import Control

        services = [control.value for control in Control]
        words = value if isinstance(value, list) else value.split(",")
        if not set(words) <= set(services):
            self.fail(
                f"{value!r} is not a list of {', '.join(services)}, for example {','.join(services)}",
                param,
                ctx,
            )
        return words


class ConstraintText(click.ParamType[list[str]]):
    """FIELD:OPERATOR[:VALUE], checked like in the scheduler; the value may contain colons."""

    name = "field:operator[:value]"

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Parse a constraint into Marathon's form: two or three strings."""
        from mesos_gpu.wire.constraints import constraint_of

        if isinstance(value, list):
            return value
        words = value.split(":", 2)
        constraint = constraint_of(words)
        if isinstance(constraint, str):
            self.fail(
                f"{value!r} is not FIELD:OPERATOR[:VALUE], for example hostname:UNIQUE: it {constraint}"
            )
        return constraint.as_list()


class TopologyText(click.ParamType[dict[str, str]]):
    """required:LEVEL or preferred:LEVEL, checked like in the scheduler."""

    name = "required|preferred:level"

    def convert(
        self, value: str | dict[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        """Parse requirement and level into an object of a request."""
        from mesos_gpu.wire.constraints import topology_of, topology_to_json

        if isinstance(value, dict):
            return value
        wish, _, level = value.partition(":")
        topology = topology_of({wish: level})
        if isinstance(topology, str):
            self.fail(
                f"{value!r} is neither required:LEVEL nor preferred:LEVEL, for example required:rack",
                param,
                ctx,
            )
        return topology_to_json(topology)


class SecretText(click.ParamType[tuple[str, dict[str, str | None]]]):
    """NAME=PATH[:FILE], checked like in the scheduler."""

    name = "name=path[:file]"

    def convert(
        self,
        value: str | tuple[str, dict[str, str | None]],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, dict[str, str | None]]:
        """Parse a secret; an error does not repeat the text, because it may be the secret itself."""
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
        """Parse a named volume into an object of a request; other values are returned unchanged."""
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
        """Parse addresses, and remove trailing slashes."""
        try:
            return normal_urls(value)
        except ValueError as err:
            self.fail(str(err), param, ctx)


class JobRef(click.ParamType[str]):
    """ID of a job or the start of one, or some tasks of a job array, resolved by the scheduler.

    With `active` only jobs that have not ended are completed.
    """

    name = "id"

    def __init__(self, *, active: bool = False) -> None:
        self._active = active

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse text that cannot be an ID, before it becomes part of an address."""
        value = re.sub(r"\[[0-9,:%-]+\]$", "", value)  # the form in which lists show arrays
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(\.[0-9][0-9,:-]*)?", value):
            self.fail(f"{value!r} is not a job's ID, such as train-1a2b3c4d, or the start of one", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return IDs of jobs, newest first; none if the scheduler does not answer quickly."""
        client = _quick_client(ctx)
        if client is None:
            return []
        with client:
            try:
                jobs = client.jobs(states=["active"] if self._active else [], limit=200)
            except MesosGpuError:
                return []  # completion cannot show an error
        return [
            CompletionItem(job["id"], help=f"{job['state']} {job['name']}")
            for job in jobs
            if job["id"].startswith(incomplete)
        ]


class Ref(click.ParamType[str]):
    """Reference to an object of the scheduler: a GPU, a node, a driver's version.

    Args:
        name: Name of the value in --help.
        pattern: Regular expression of valid values, or a function that returns it.
        form: Description of valid values for errors.
        completed: Function that lists the existing values.
    """

    def __init__(
        self,
        name: str,
        pattern: str | Callable[[], str],
        form: str,
        completed: Callable[["Client"], list[str]],
    ) -> None:
        self.name = name
        self._pattern, self._form, self._completed = pattern, form, completed

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse text that cannot be a reference, before it becomes part of an address."""
        pattern = self._pattern if isinstance(self._pattern, str) else self._pattern()
        if not re.fullmatch(pattern, value):
            self.fail(f"{value!r} is not {self._form}", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return existing values that begin with the typed text; none if the scheduler does not answer quickly."""
        client = _quick_client(ctx)
        if client is None:
            return []
        with client:
            try:
                return [CompletionItem(n) for n in self._completed(client) if n.startswith(incomplete)]
            except MesosGpuError:
                return []  # completion cannot show an error


class AppRef(Ref):
    """ID of an app."""

    def __init__(self) -> None:
        super().__init__("id", "", "", _apps)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the absolute ID: `shop/db` becomes `/shop/db`."""
        from mesos_gpu.wire.marathon.paths import ROOT, absolute, problem_of

        id = absolute(value.strip())
        if id == ROOT or problem_of(id):
            words = "lowercase letters, digits, - and . between slashes"
            self.fail(f"{value!r} is not an app's ID, such as /shop/db: {words}", param, ctx)
        return id


class Version(click.ParamType[str]):
    """Version of an app."""

    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parse a version in Marathon's form."""
        from mesos_gpu.wire.marathon.moments import moment, stamp

        try:
            return stamp(moment(value))
        except (ValueError, OverflowError, OSError):
            form = "such as 2015-02-03T12:30:00.000Z; list versions with `mesos-gpu app versions`"
            self.fail(f"{value!r} is not a version, {form}", param, ctx)


class JobOrAppRef(JobRef):
    """ID of a job, or of an app, which begins with a slash."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parse an app's ID if it begins with a slash, else a job's."""
        return APP.convert(value, param, ctx) if value.startswith("/") else super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete apps after a slash, else jobs."""
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
    files = next((own for c in _upwards(ctx) if (own := getattr(c.obj, "files", None))), Files())
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
DEPLOYMENT: Final = Ref("id", _WORD, "a deployment's ID, or the start of one", _deployments)
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
    "a driver version, such as 535 or 535.104.05",
    lambda client: sorted(
        {v for node in client.nodes() if re.fullmatch(_driver(), v := node["driver_version"] or "")}
    ),
)
COMPUTE_CAPABILITY: Final = Ref(
    "version",
    _capability,
    "a compute capability, such as 8.0",
    lambda client: sorted({known for gpu in client.gpus() if (known := gpu["compute_capability"])}),
)
