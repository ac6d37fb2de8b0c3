"""Plan of an upgrade from the running program to another. Pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.spec.cluster.upgrade import Flag, NodeProgram, Upgrade
from mesos_gpu.model.nodes.wires import spoken
from mesos_gpu.model.words import counted

ROLL_S = 4.0  # seconds to replace a monitor: its end, an offer, start and first report of the new one


class Release(TypedDict):
    """A program: its release, its wire versions with hosts, and the schema of its state; null if not known."""

    version: str
    wire: int
    oldest: int
    schema: int | None


class Step(TypedDict):
    """A step of the plan; `by` is "you" or "scheduler"."""

    by: str
    what: str


class Replaced(TypedDict):
    """A node whose monitor is replaced, and the reason."""

    hostname: str
    why: str


class Changed(TypedDict):
    """An option whose default changes; null for no default."""

    name: str
    was: str | None
    will_be: str | None


class Plan(TypedDict):
    """Plan of an upgrade; it can begin if nothing is in the way."""

    running: Release
    this: Release
    needed: bool
    in_the_way: list[str]
    steps: list[Step]
    monitors: list[Replaced]
    executors: list[str]
    defaults: list[Changed]
    new_options: list[str]
    cannot_be_undone: list[str]


@dataclass(frozen=True, slots=True)
class Program:
    """The program to upgrade to.

    Attributes:
        release: Release of the program.
        flags: Options of its scheduler.
        digest: SHA-256 of the archive for hosts; "" if not given.
    """

    release: Release
    flags: Sequence[Flag]
    digest: str = ""


def plan_of(told: Upgrade | None, version: str, leadership: Leadership | None, program: Program) -> Plan:
    """Return the plan of an upgrade.

    Args:
        told: Answer of the scheduler's upgrade route; None if its release lacks the route.
        version: Release of the scheduler.
        leadership: Leadership report; None if the release supports only one scheduler.
        program: Program to upgrade to.
    """
    this = program.release
    running: Release = {"version": version, "wire": 1, "oldest": 1, "schema": None}
    if told is not None:
        running = {name: told[name] for name in ("version", "wire", "oldest", "schema")}  # type: ignore[assignment]
    monitors = list(_replaced(told.get("nodes", []) if told else [], running, program))
    flags = {flag["name"]: flag for flag in program.flags}
    running_flags = {flag["name"]: flag for flag in (told["flags"] if told else ())}
    needed = running != this or bool(monitors)
    return {
        "running": running,
        "this": this,
        "needed": needed,
        "in_the_way": list(_in_the_way(told, running, program)),
        "steps": list(_steps(running, this, leadership, monitors, told)) if needed else [],
        "monitors": monitors,
        "executors": list(_executors(told)),
        "defaults": [
            {"name": name, "was": flag["default"], "will_be": flags[name]["default"]}
            for name, flag in running_flags.items()
            if not flag["given"] and name in flags and flag["default"] != flags[name]["default"]
        ],
        "new_options": [name for name in flags if running_flags and name not in running_flags],
        "cannot_be_undone": list(_for_good(running, this)) if needed else [],
    }


def _replaced(nodes: Sequence[NodeProgram], running: Release, program: Program) -> Iterator[Replaced]:
    """Yield the nodes whose monitors will be replaced, with reasons."""
    this = program.release
    for node in nodes:
        program_now, why = node["program"], node["outdated"] or ""
        if program_now is None:
            why = why or "it does not report its release"
        elif program.digest and program_now["digest"] != program.digest:
            why = (
                why
                or f"its program is {(program_now['digest'] or 'not known')[:12]}, not {program.digest[:12]}"
            )
        elif (program_now["version"], program_now["wire"]) != (this["version"], this["wire"]):
            why = (
                why
                or f"it is of release {program_now['version']}, {spoken(program_now['wire'], program_now['oldest'])}"
            )
        elif running["wire"] != this["wire"]:
            why = why or "the wire version of its messages changes"
        if why:
            yield {"hostname": node["hostname"], "why": why}


def _in_the_way(told: Upgrade | None, running: Release, program: Program) -> Iterator[str]:
    """Yield the obstacles that must be removed before the upgrade."""
    this = program.release
    if running["schema"] is not None and this["schema"] is not None and running["schema"] > this["schema"]:
        yield (
            f"the state has schema {running['schema']}, but this program knows at most {this['schema']}: restore an "
            "older "
            "backup, or keep the newer program"
        )
    if told is None:
        return
    for node in told["nodes"]:
        if node["problem"]:
            yield f"the monitor of {node['hostname']} is being replaced, with a problem: {node['problem']}"
    for kind in told["executors"]:
        if kind["wire"] < this["oldest"]:
            yield (
                f"{counted(kind['tasks'], 'task')} run in executors with wire {kind['wire']}, but this program "
                "supports "
                f"{spoken(this['wire'], this['oldest'])}: wait for their end, or upgrade via a release in between"
            )
    names = {flag["name"] for flag in program.flags}
    for flag in told["flags"]:
        if flag["given"] and flag["name"] not in names:
            yield f"the scheduler was started with {flag['name']}, which this program does not know: remove it"


def _steps(
    running: Release,
    this: Release,
    leadership: Leadership | None,
    monitors: Sequence[Replaced],
    told: Upgrade | None,
) -> Iterator[Step]:
    """Yield the steps of the upgrade in order."""
    yield {
        "by": "you",
        "what": "back up the state: mesos-gpu backup FILE, on the leading scheduler's host",
    }
    yield {
        "by": "you",
        "what": "install this release's programs on the hosts, in any order: the archive or the package; tasks "
        "continue",
    }
    schedulers = leadership["schedulers"] if leadership is not None else []
    for member in schedulers:
        if not member["leads"]:
            yield {"by": "you", "what": f"restart {member['url']} with this release; it becomes a standby"}
    leader = next((member["url"] for member in schedulers if member["leads"]), "the scheduler")
    last = (
        ", as the last one; or first hand over leadership: mesos-gpu leader --abdicate"
        if len(schedulers) > 1
        else "; tasks continue without it"
    )
    yield {"by": "you", "what": f"restart {leader} with this release{last}"}
    if running["schema"] != this["schema"]:
        was = "an earlier schema" if running["schema"] is None else f"schema {running['schema']}"
        copy = f"a copy is made first, FILE.before-v{this['schema']}"
        yield {"by": "scheduler", "what": f"migrate its state from {was} to {this['schema']}; {copy}"}
    if monitors or told is None:
        of = "all node monitors" if told is None else counted(len(monitors), "node monitor")
        took = "" if told is None else f", in about {_roll_s(len(monitors)):.0f} s"
        yield {
            "by": "scheduler",
            "what": f"replace {of}: one, then a hundredth of the nodes at a time{took}; tasks continue",
        }


def _roll_s(monitors: int) -> float:
    at_once = max(1, monitors // 100)
    return ROLL_S * (1 + -(-max(monitors - 1, 0) // at_once))


def _executors(told: Upgrade | None) -> Iterator[str]:
    """Yield descriptions of executors that continue with their old program, with time limits of their tasks."""
    for kind in told["executors"] if told else ():
        release = f"release {kind['version']}" if kind["version"] else "an unknown release"
        until = (
            f"; {kind['unlimited']} of them without a time limit"
            if kind["unlimited"]
            else "; all of them have a time limit"
        )
        yield f"{counted(kind['tasks'], 'task')} run in executors of {release}, wire {kind['wire']}{until}"


def _for_good(running: Release, this: Release) -> Iterator[str]:
    if running["schema"] != this["schema"]:
        yield (
            "the state's schema: an earlier release refuses it. To go back, restore the earlier copy; later changes "
            "are not in it, and tasks unknown to it are held"
        )
