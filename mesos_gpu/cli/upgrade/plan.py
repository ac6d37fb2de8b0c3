"""What an upgrade from what runs to another program would do. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.spec.cluster.upgrade import Flag, NodeProgram, Upgrade
from mesos_gpu.model.nodes.wires import spoken
from mesos_gpu.model.words import counted

ROLL_S = 4.0  # that a monitor's replacement takes: its end, the offer, the new one's start and first report


class Release(TypedDict):
    """A program: its release, what it speaks with hosts, and the schema of its state; null: it does not say it."""

    version: str
    wire: int
    oldest: int
    schema: int | None


class Step(TypedDict):
    """Something to be done, by whom: "you" or "scheduler"."""

    by: str
    what: str


class Replaced(TypedDict):
    """A node whose monitor is replaced, and why."""

    hostname: str
    why: str


class Changed(TypedDict):
    """An option whose default is another; null: there is none."""

    name: str
    was: str | None
    will_be: str | None


class Plan(TypedDict):
    """All of it; nothing in the way: it can begin."""

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
    """The program that is to run.

    Attributes:
        release: What it is.
        flags: Its scheduler's options.
        digest: SHA-256 of the archive that hosts are to have; "": not told.
    """

    release: Release
    flags: Sequence[Flag]
    digest: str = ""


def plan_of(told: Upgrade | None, version: str, leadership: Leadership | None, program: Program) -> Plan:
    """The plan.

    Args:
        told: What the scheduler says; None: its release cannot.
        version: Of the scheduler.
        leadership: Who leads; None: its release does not know of several.
        program: What is to run in its place.
    """
    this = program.release
    running: Release = {"version": version, "wire": 1, "oldest": 1, "schema": None}
    if told is not None:
        running = {name: told[name] for name in ("version", "wire", "oldest", "schema")}  # type: ignore[assignment]
    monitors = list(_replaced(told.get("nodes", []) if told else [], running, program))
    flags = {each["name"]: each for each in program.flags}
    known = {each["name"]: each for each in (told["flags"] if told else ())}
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
            for name, flag in known.items()
            if not flag["given"] and name in flags and flag["default"] != flags[name]["default"]
        ],
        "new_options": [name for name in flags if known and name not in known],
        "cannot_be_undone": list(_for_good(running, this)) if needed else [],
    }


def _replaced(nodes: Sequence[NodeProgram], running: Release, program: Program) -> Iterator[Replaced]:
    this = program.release
    for node in nodes:
        said, why = node["program"], node["outdated"] or ""
        if said is None:
            why = why or "it does not say what it is"
        elif program.digest and said["digest"] != program.digest:
            why = (
                why or f"its program is {(said['digest'] or 'not known')[:12]}, and not {program.digest[:12]}"
            )
        elif (said["version"], said["wire"]) != (this["version"], this["wire"]):
            why = why or f"it is of release {said['version']}, {spoken(said['wire'], said['oldest'])}"
        elif running["wire"] != this["wire"]:
            why = why or "it is told in which wire it is spoken to"
        if why:
            yield {"hostname": node["hostname"], "why": why}


def _in_the_way(told: Upgrade | None, running: Release, program: Program) -> Iterator[str]:
    """What must be mended before anything is done."""
    this = program.release
    if running["schema"] is not None and this["schema"] is not None and running["schema"] > this["schema"]:
        yield (
            f"the state has schema {running['schema']}, and this program knows {this['schema']} at most: restore a "
            "backup from before, or stay with the newer program"
        )
    if told is None:
        return
    for node in told["nodes"]:
        if node["problem"]:
            yield f"the monitor of {node['hostname']} is being replaced, and: {node['problem']}"
    for kind in told["executors"]:
        if kind["wire"] < this["oldest"]:
            yield (
                f"{counted(kind['tasks'], 'task')} run by executors that speak wire {kind['wire']}, and this program "
                f"{spoken(this['wire'], this['oldest'])}: wait for their end, or upgrade by a release between the two"
            )
    names = {each["name"] for each in program.flags}
    for flag in told["flags"]:
        if flag["given"] and flag["name"] not in names:
            yield f"the scheduler was started with {flag['name']}, which this program does not know: take it away"


def _steps(
    running: Release,
    this: Release,
    leadership: Leadership | None,
    monitors: Sequence[Replaced],
    told: Upgrade | None,
) -> Iterator[Step]:
    yield {
        "by": "you",
        "what": "copy the state: mesos-gpu backup FILE, on the host of the scheduler that leads",
    }
    yield {
        "by": "you",
        "what": "put this release's programs on the hosts, in any order: the archive, or the package; tasks run on",
    }
    schedulers = leadership["schedulers"] if leadership is not None else []
    for each in schedulers:
        if not each["leads"]:
            yield {"by": "you", "what": f"start {each['url']} anew with this release; it stands by"}
    leader = next((each["url"] for each in schedulers if each["leads"]), "the scheduler")
    last = (
        ", as the last one; or first: curl -X DELETE of its /v2/leader, and another leads"
        if len(schedulers) > 1
        else "; tasks run on without it"
    )
    yield {"by": "you", "what": f"start {leader} anew with this release{last}"}
    if running["schema"] != this["schema"]:
        was = "an earlier schema" if running["schema"] is None else f"schema {running['schema']}"
        copy = f"a copy is made before, FILE.before-v{this['schema']}"
        yield {"by": "scheduler", "what": f"bring its state from {was} to {this['schema']}; {copy}"}
    if monitors or told is None:
        of = "all node monitors" if told is None else counted(len(monitors), "node monitor")
        took = "" if told is None else f", in about {_roll_s(len(monitors)):.0f} s"
        yield {
            "by": "scheduler",
            "what": f"replace {of}, the first alone, then a hundredth of the nodes at a time{took}; tasks run on",
        }


def _roll_s(monitors: int) -> float:
    at_once = max(1, monitors // 100)
    return ROLL_S * (1 + -(-max(monitors - 1, 0) // at_once))


def _executors(told: Upgrade | None) -> Iterator[str]:
    """Who runs on with the program that it was started with, and until when."""
    for kind in told["executors"] if told else ():
        release = f"release {kind['version']}" if kind["version"] else "a release that does not say which"
        until = (
            f"; {kind['unlimited']} of them without a time limit"
            if kind["unlimited"]
            else "; all of them have a time limit"
        )
        yield f"{counted(kind['tasks'], 'task')} run by executors of {release}, wire {kind['wire']}{until}"


def _for_good(running: Release, this: Release) -> Iterator[str]:
    if running["schema"] != this["schema"]:
        yield (
            "the state's schema: an earlier release refuses it. To go back, restore the copy from before; what "
            "happened since is not in it, and tasks that it does not know are held"
        )
