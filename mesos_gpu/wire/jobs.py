"""A job request, checked: a `JobSpec`, or all that is wrong with it at once. Pure."""

import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import (
    DEFAULT_QUEUE,
    HIGHEST_PRIORITY,
    MOST_TASKS,
    Engine,
    JobSpec,
    OnGpuFailure,
    OnMemberFailure,
    Placement,
)
from mesos_gpu.model.jobs.mount import Mount, unfit
from mesos_gpu.model.jobs.permits import Control, Permits
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import CUDA_LABEL, CUDA_OF_BRANCH, MINIMUM, branch_for
from mesos_gpu.model.nodes.gpu import CAPABILITY
from mesos_gpu.wire import image as images
from mesos_gpu.wire.constraints import MOST_CONSTRAINTS, constraint_of
from mesos_gpu.wire.mounts import MOST as MOST_MOUNTS
from mesos_gpu.wire.mounts import mount_of

E = TypeVar("E", bound=Enum)
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")  # useradd(8)
ENV_KEY: Final = re.compile(r"[^=\x00]+")
UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")
LABEL_KEY: Final = re.compile(r"[^\x00]+")
_TEXT: Final = re.compile(r"[^\0\ud800-\udfff]+")
MOST_PORTS: Final = 100
NO_FRACTIONS: Final = "fractions of a GPU are not enabled; ask for whole GPUs"
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {  # both may be asked for, but a timeout_s of 0
    "cpus": (0.001, 1e5),  # Mesos keeps three decimals of a scalar: less would be none
    "mem_mib": (1, 2**31),
    "disk_mib": (0, 2**31),
    "gpu_memory_mib": (1, 2**31),
    "gpus": (0, 1024),
    "tasks": (1, MOST_TASKS),
    "max_attempts": (1, 1000),
    "timeout_s": (0, 1e9),
    "kill_grace_s": (0, 3600),
    "priority": (-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
}
CHECK_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "port": (1, 65535),
    "timeout_s": (1, 10**9),
    **dict.fromkeys(("grace_period_s", "interval_s", "max_consecutive_failures", "delay_s"), (0, 10**9)),
}
KNOWN: Final = (
    "name", "command", "argv", "cpus", "mem_mib", "disk_mib", "gpus", "gpu_model", "env", "user", "labels",
    "max_attempts", "timeout_s", "kill_grace_s", "image", "container_engine", "on_gpu_failure", "min_driver",
    "placement", "priority", "queue", "app", "constraints", "near", "away", "gpu_memory_mib", "compute_capability",
    "tasks", "on_member_failure", "preemptible", "health_checks", "ports", "fetch",
    "volumes", "args", "pull", "control_access",
)  # fmt: skip

CHECK_KNOWN: Final = (
    "protocol", "command", "path", "port", "grace_period_s", "interval_s", "timeout_s", "max_consecutive_failures",
    "delay_s",
)  # fmt: skip
CHECK_PATH: Final = re.compile(r"/[^\x00\ud800-\udfff]*")
MOST_CHECKS: Final = 16
ARTIFACT_KNOWN: Final = ("uri", "extract", "executable", "cache", "dest_path")
MOST_ARTIFACTS: Final = 100
PROTOCOLS: Final = tuple(protocol for protocol in Protocol if protocol.by_executor)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `path` is a JSON pointer."""

    path: str
    reason: str


class BadJson(ValueError):
    """The body is no JSON object."""


def object_of(body: bytes) -> dict[str, Any]:
    """A request's body as an object.

    Raises:
        BadJson: It is none.
    """
    try:
        # Stricter than json: NaN, lone surrogates and numbers that overflow are no JSON.
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise BadJson(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadJson(f"the body must be a JSON object, not {type(value).__name__}")
    return value


def decode(body: bytes, *, permits: Permits, engine: Engine = Engine.MESOS) -> JobSpec | list[Problem]:
    """A request's body; `engine` runs the images of jobs that name none, `permits` is what the operator allows.

    Raises:
        BadJson: It is no JSON object.
    """
    return spec_from_mapping(object_of(body), permits=permits, engine=engine)


def spec_from_mapping(
    value: Mapping[str, Any], *, permits: Permits | None = None, engine: Engine = Engine.MESOS
) -> JobSpec | list[Problem]:
    """The same for a mapping, as from YAML. A field that is null is as if it were absent. Without `permits` what an
    operator must allow is taken to be."""
    given = {key: item for key, item in value.items() if item is not None}
    check = _Check(value, KNOWN)
    if "container_engine" in given and "image" not in given:
        check.problem("container_engine", "needs an image")
    spec = _spec_of(check, engine)
    if spec.pull and "image" not in given:
        check.problem("pull", "needs an image")
    if permits is not None:
        _report_unpermitted(check, spec, permits)
    if spec.near is not None and spec.near == spec.away:
        check.problem("away", f"names {show(spec.away)}, as near does: no node could do; leave one out")
    return check.problems or spec


def _report_unpermitted(check: "_Check", spec: JobSpec, permits: Permits) -> None:
    for key, why in (
        ("user", permits.problem_of_user(spec.user, has_image=spec.image is not None)),
        ("control_access", permits.problem_of_controls(spec.control_access, spec.name, spec.user)),
    ):
        if why:
            check.problem(key, why)


def _spec_of(check: "_Check", engine: Engine) -> JobSpec:
    image = check.image()
    command, argv = check.command(image=image)
    gpus, models = check.gpus(), check.models()
    memory_mib, capability = check.gpu_memory_mib(), check.compute_capability()
    if gpus == 0 and "gpus" not in check.failed:
        check.need_no_gpus(gpu_model=models, gpu_memory_mib=memory_mib, compute_capability=capability)
    name = check.text(
        "name",
        default_name(command, argv, image),
        NAME,
        "1 to 63 of a-z, 0-9, '.' and '-', beginning and ending alphanumeric",
    )
    return JobSpec(
        name=name or "job",
        command=command,
        argv=argv,
        cpus=check.number("cpus", 1.0, _within("cpus"), "a positive number, from 0.001 to 100000"),
        mem_mib=check.mib("mem_mib", 128),
        gpus=gpus,
        gpu_model=models,
        env=check.strings("env", ENV_KEY),
        user=check.text("user", None, USER, "a user name of Linux, as alice"),
        labels=check.strings("labels", LABEL_KEY),
        max_attempts=check.integer("max_attempts", 1),
        timeout_s=check.optional(
            "timeout_s",
            lambda n: 0 < n <= BOUNDS["timeout_s"][1],
            "a positive number of seconds, at most 1e9",
        ),
        kill_grace_s=check.number("kill_grace_s", 5.0, _within("kill_grace_s"), "a number from 0 to 3600"),
        image=image,
        container_engine=check.one_of("container_engine", engine) if image else Engine.MESOS,
        on_gpu_failure=check.one_of("on_gpu_failure", OnGpuFailure.RESTART),
        placement=check.placement(),
        min_driver=check.min_driver(gpus),
        priority=check.integer("priority", 0),
        queue=check.text("queue", DEFAULT_QUEUE, NAME, "1 to 63 of a-z, 0-9, '.' and '-', as research")
        or DEFAULT_QUEUE,
        app=check.app("app"),
        constraints=check.constraints(),
        near=check.app("near"),
        away=check.app("away"),
        tasks=check.integer("tasks", 1),
        on_member_failure=check.one_of("on_member_failure", OnMemberFailure.RESTART),
        preemptible=check.flag("preemptible"),
        gpu_memory_mib=memory_mib,
        compute_capability=capability,
        health_checks=check.health_checks(),
        ports=check.ports(),
        disk_mib=check.integer("disk_mib", 0),
        fetch=check.artifacts(),
        mounts=check.mounts(),
        args=check.args(),
        pull=check.flag("pull"),
        control_access=check.control_access(),
    )


def default_name(command: str | None, argv: tuple[str, ...], image: str | None = None) -> str:
    """The program's name, or the image's, as far as it may be a job's."""
    words = (command or "").split() or list(argv) or [images.short_name(image) if image else "job"]
    base = words[0].rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9.-]+", "-", base)[:40].strip(".-") or "job"


def _within(key: str) -> Callable[[float], bool]:
    least, most = BOUNDS[key]
    return lambda n: least <= n <= most


class _Check:
    """Collects problems; each method gives a usable value even where it found one."""

    def __init__(self, value: Mapping[str, Any], known: Iterable[str]) -> None:
        self._value = {key: item for key, item in value.items() if item is not None}
        self.problems: list[Problem] = []
        self.failed: set[str] = set()
        fields, listed = tuple(known), False
        for key in value:
            if key not in fields:
                near = difflib.get_close_matches(str(key).lower(), fields, n=2)
                more = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(fields)}"
                self.problem(_escaped(key), "unknown field" + ("" if listed and not near else f"; {more}"))
                listed = listed or not near  # once is enough

    def problem(self, path: object, reason: str) -> None:
        self.failed.add(str(path))
        self.problems.append(Problem(f"/{path}", reason))

    def number(
        self, key: str, default: float, good: Callable[[float], bool], form: str, *, whole: bool = False
    ) -> float:
        got = self._value.get(key, default)
        if not is_number(got) or (whole and got != int(got)) or not good(got):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return float(got)

    def integer(self, key: str, default: int, bounds: Mapping[str, tuple[float, float]] = BOUNDS) -> int:
        least, most = bounds[key]
        form = f"an integer from {least} to {most}"
        return int(self.number(key, default, lambda n: least <= n <= most, form, whole=True))

    def mib(self, key: str, default: int) -> int:
        form = "a positive integer, at most 2**31"
        return int(self.number(key, default, _within(key), form, whole=True))

    def flag(self, key: str, default: bool = False) -> bool:
        got = self._value.get(key, default)
        if not isinstance(got, bool):
            self.problem(key, f"must be true or false, got {show(got)}")
        return got is True

    def gpus(self) -> int:
        got = self._value.get("gpus")
        if isinstance(got, float) and got > 0 and is_number(got) and not got.is_integer():
            self.problem("gpus", NO_FRACTIONS)
            return 0
        return self.integer("gpus", 0)

    def gpu_memory_mib(self) -> int | None:
        return self.mib("gpu_memory_mib", 1) if "gpu_memory_mib" in self._value else None

    def compute_capability(self) -> str | None:
        return self.text("compute_capability", None, CAPABILITY, 'a compute capability, as "8.0"')

    def need_no_gpus(self, **asked: object) -> None:
        """Of a job without GPUs: nothing is asked of them."""
        for key, value in asked.items():
            if value and key not in self.failed:
                self.problem(key, "needs gpus of at least 1")

    def optional(self, key: str, good: Callable[[float], bool], form: str) -> float | None:
        return self.number(key, 1.0, good, form) if key in self._value else None

    def text(self, key: str, default: str | None, pattern: re.Pattern[str], form: str) -> str | None:
        got = self._value.get(key, default)
        if got is not None and (not isinstance(got, str) or not pattern.fullmatch(got)):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return got

    def image(self) -> str | None:
        got = self._value.get("image")
        form = "an image, as [registry[:port]/]path[:tag][@digest]"
        why = images.problem(got) if isinstance(got, str) else f"got {show(got)}"
        if got is not None and why:
            self.problem("image", f"must be {form}: {why}")
        return got if isinstance(got, str) else None

    def placement(self) -> Placement | None:
        return self.one_of("placement", Placement.BUNDLE) if "placement" in self._value else None

    def one_of(self, key: str, default: E, among: Iterable[E] | None = None) -> E:
        got = self._value.get(key, default.value)
        known = {choice.value: choice for choice in among or type(default)}
        if not isinstance(got, str) or got not in known:
            self.problem(key, f"must be one of {', '.join(known)}, got {show(got)}")
            return default
        return known[got]

    def command(self, *, image: str | None) -> tuple[str | None, tuple[str, ...]]:
        command, argv = self._value.get("command"), self._value.get("argv")
        if command is None and argv is None and image is not None:
            return None, ()  # the image's own entrypoint
        if (command is None) == (argv is None):
            self.problem("", "needs exactly one of command (for /bin/sh -c) and argv (a list)")
            return None, ()
        if command is not None:
            if not _is_command(command):
                self.problem("command", f"must be a non-empty string without NUL, got {show(command)}")
                return None, ()
            return command, ()
        words = argv if isinstance(argv, list) else []
        if not words or not all(_is_text(word) for word in words) or not words[0]:
            reason = "must be a list of strings without NUL, the first not empty"
            self.problem("argv", f"{reason}, got {show(argv)}")
            return None, ()
        return None, tuple(words)

    def models(self) -> tuple[str, ...]:
        got = self._value.get("gpu_model", [])
        models = [got] if isinstance(got, str) else got
        if not isinstance(models, list) or not all(_is_text(m) and m.strip() for m in models):
            self.problem("gpu_model", f"must be a model or a list of models, got {show(got)}")
            return ()
        if len(set(models)) != len(models):
            self.problem("gpu_model", f"names a model twice: {show(models)}")
        return tuple(models)

    def min_driver(self, gpus: int) -> str | None:
        """What is asked for, else what the label asks for: the first branch that runs its CUDA."""
        labels = self._value.get("labels")
        cuda = labels.get(CUDA_LABEL) if isinstance(labels, dict) else None
        if "min_driver" in self._value or not gpus or not isinstance(cuda, str) or not cuda.strip():
            return self.text("min_driver", None, MINIMUM, 'a driver version, as "535" or "535.104.05"')
        least = branch_for(cuda.strip())
        if least is None:
            newest = ".".join(map(str, CUDA_OF_BRANCH[-1][1]))
            form = f"a CUDA version up to {newest}, the newest whose driver is known here"
            self.problem(
                f"labels/{_escaped(CUDA_LABEL)}", f"must be {form}, or set min_driver; got {show(cuda)}"
            )
        return least

    def app(self, key: str) -> str | None:
        return self.text(key, None, NAME, "the name of an app, 1 to 63 of a-z, 0-9, '.' and '-', as web")

    def constraints(self) -> tuple[Constraint, ...]:
        got = self._value.get("constraints", [])
        if not isinstance(got, list) or len(got) > MOST_CONSTRAINTS:
            form = f"a list of at most {MOST_CONSTRAINTS} constraints"
            self.problem("constraints", f'must be {form}, as [["hostname", "UNIQUE"]], got {show(got)}')
            return ()
        found = []
        for i, item in enumerate(got):
            made = constraint_of(item)
            if isinstance(made, str):
                self.problem(f"constraints/{i}", f"{made}; got {show(item)}")
            elif made.compares and "app" not in self._value and self._value.get("tasks", 1) == 1:
                why = f"{show(item)} compares the jobs of an app, and this job has none: set app, or tasks"
                self.problem(f"constraints/{i}", why)
            else:
                found.append(made)
        return tuple(found)

    def ports(self) -> tuple[PortWish, ...]:
        got = self._value.get("ports", [])
        form = f"a list of at most {MOST_PORTS} ports of the host, each from 0 (any) to 65535"
        if not isinstance(got, list) or len(got) > MOST_PORTS or not all(map(_is_port, got)):
            self.problem("ports", f"must be {form}, got {show(got)}")
            return ()
        fixed = [port for port in got if port]
        if len(set(fixed)) < len(fixed):
            self.problem("ports", f"names a port twice: {show(got)}")
        if got and self._value.get("tasks", 1) != 1:
            self.problem("ports", "is for jobs of one task; each of several has one port, as PORT")
        return tuple(PortWish(None, port, port) for port in got)

    def artifacts(self) -> tuple[Artifact, ...]:
        got = self._value.get("fetch", [])
        if not isinstance(got, list) or len(got) > MOST_ARTIFACTS:
            self.problem("fetch", f"must be a list of at most {MOST_ARTIFACTS} URIs, got {show(got)}")
            return ()
        return tuple(self._artifact(f"fetch/{i}", item) for i, item in enumerate(got))

    def _artifact(self, path: str, value: object) -> Artifact:
        given = {"uri": value} if isinstance(value, str) else value
        if not isinstance(given, dict):
            self.problem(path, f"must be a URI, or an object with uri, got {show(value)}")
            return Artifact("")
        check = _Check(given, ARTIFACT_KNOWN)
        made = Artifact(
            check.text("uri", "", _TEXT, "a URI") or "",
            check.flag("extract", True),
            check.flag("executable"),
            check.flag("cache"),
            check.text("dest_path", None, _TEXT, "a path below the sandbox"),
        )
        if not check.problems and made.problem:
            check.problem("", made.problem)
        for problem in check.problems:
            self.problem((path + problem.path).removesuffix("/"), problem.reason)
        return made

    def args(self) -> tuple[str, ...]:
        got = self._value.get("args", [])
        if not isinstance(got, list) or not all(map(_is_text, got)):
            self.problem("args", f"must be a list of strings without NUL, got {show(got)}")
            return ()
        if got and ("image" not in self._value or {"command", "argv"} & self._value.keys()):
            self.problem(
                "args", "is for the entrypoint of an image; it needs image, and neither command nor argv"
            )
        return tuple(got)

    def control_access(self) -> tuple[Control, ...]:
        got = self._value.get("control_access", [])
        known = {control.value: control for control in Control}
        if not isinstance(got, list) or not all(isinstance(each, str) and each in known for each in got):
            self.problem("control_access", f"must be a list of {', '.join(known)}, got {show(got)}")
            return ()
        return tuple(dict.fromkeys(known[each] for each in got))

    def mounts(self) -> tuple[Mount, ...]:
        got = self._value.get("volumes", [])
        if not isinstance(got, list) or len(got) > MOST_MOUNTS:
            self.problem("volumes", f"must be a list of at most {MOST_MOUNTS} volumes, got {show(got)}")
            return ()
        found: list[Mount] = []
        for i, item in enumerate(got):
            made = mount_of(item if _is_text(item) else None)
            if isinstance(made, str):
                self.problem(f"volumes/{i}", f"{made}; got {show(item)}")
            else:
                found.append(made)
        if "volumes" not in self.failed:
            for i, why in unfit(found):
                self.problem(f"volumes/{i}", why)
        return tuple(found)

    def health_checks(self) -> tuple[HealthCheck, ...]:
        got = self._value.get("health_checks", [])
        if not isinstance(got, list) or len(got) > MOST_CHECKS:
            form = f"a list of at most {MOST_CHECKS} health checks"
            self.problem("health_checks", f"must be {form}, got {show(got)}")
            return ()
        own_port = (
            bool(self._value.get("ports")) or self._value.get("tasks", 1) != 1
        )  # each of several has one
        return tuple(self._health_check(f"health_checks/{i}", item, own_port) for i, item in enumerate(got))

    def _health_check(self, path: str, value: object, own_port: bool) -> HealthCheck:
        if not isinstance(value, dict):
            self.problem(path, f"must be an object, got {show(value)}")
            return HealthCheck()
        check = _Check(value, CHECK_KNOWN)
        made = check.as_health_check(own_port=own_port)
        for problem in check.problems:
            self.problem(path + problem.path, problem.reason)
        return made

    def as_health_check(self, *, own_port: bool) -> HealthCheck:
        protocol = self.one_of("protocol", Protocol.COMMAND, PROTOCOLS)
        if "protocol" not in self._value:
            self.problem("protocol", f"must be one of {', '.join(one.value for one in PROTOCOLS)}")
        fits = {"command": protocol is Protocol.COMMAND, "path": protocol.is_http}
        fits["port"] = not fits["command"]
        for key in fits:
            if key in self._value and not fits[key] and "protocol" not in self.failed:
                self.problem(key, f"is not for {protocol.value}")
        if fits["command"] and "protocol" not in self.failed and not _is_command(self._value.get("command")):
            self.problem("command", "must be a non-empty string without NUL, for /bin/sh -c")
        if fits["port"] and "port" not in self._value and not own_port:
            self.problem(
                "port", f"is needed for {protocol.value}: the port of this host that the task listens on"
            )
        return self._timed(protocol, fits)

    def _timed(self, protocol: Protocol, fits: Mapping[str, bool]) -> HealthCheck:
        standard = HealthCheck()

        def whole(key: str) -> int:
            return self.integer(key, getattr(standard, key), CHECK_BOUNDS)

        return HealthCheck(
            protocol=protocol,
            command=self._value.get("command") if fits["command"] else None,
            path=self.text("path", None, CHECK_PATH, "a path, as /health") if fits["path"] else None,
            port=self.integer("port", 1, CHECK_BOUNDS) if "port" in self._value else None,
            port_index=0 if fits["port"] and "port" not in self._value else None,
            grace_period_s=whole("grace_period_s"),
            interval_s=whole("interval_s"),
            timeout_s=whole("timeout_s"),
            max_consecutive_failures=whole("max_consecutive_failures"),
            delay_s=whole("delay_s"),
        )

    def strings(self, key: str, pattern: re.Pattern[str]) -> dict[str, str]:
        got = self._value.get(key, {})
        if not isinstance(got, dict):
            self.problem(key, f"must be an object of strings, got {show(got)}")
            return {}
        unwanted = "'=' and NUL" if pattern is ENV_KEY else "NUL"
        for name, item in got.items():
            if not _is_text(name) or not pattern.fullmatch(name):
                self.problem(f"{key}/{_escaped(name)}", f"must have a name without {unwanted}")
            if not _is_text(item):
                self.problem(f"{key}/{_escaped(name)}", f"must be a string without NUL, got {show(item)}")
        return dict(got)


def is_number(value: object) -> bool:
    """A bool is none; nor is an integer that no float holds: `math.isfinite` would raise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= sys.float_info.max


def _is_text(value: object) -> bool:
    """What can be an argument of execve, and be stored: UTF-8 without NUL."""
    return isinstance(value, str) and not UNFIT.search(value)


def _is_command(value: object) -> bool:
    return isinstance(value, str) and _is_text(value) and bool(value.strip())


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")  # RFC 6901


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def show(value: object) -> str:
    """A value that was sent, cut to what fits in a sentence."""
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # YAML has keys that are no strings, and circles
        return f"something of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
