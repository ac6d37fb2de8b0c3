"""`mesos-gpu teardown`: end a framework at Mesos' master. It asks no scheduler: that may be gone for good."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option, yes_option
from mesos_gpu.cli.mesos.master import Master, master_options
from mesos_gpu.errors import Conflict, NotFound, Unavailable
from mesos_gpu.model.words import counted

GONE_S: Final = 30.0  # until the master no longer lists it
_LOOK_S: Final = 0.1


@click.command()
@click.argument("framework", metavar="ID|NAME")
@master_options
@yes_option
@json_option
def teardown(framework: str, master: str, credentials: Path | None, yes: bool, as_json: bool) -> None:
    """End a framework at the master: all its tasks end, and its id is never taken again.

    A scheduler that still runs is told so, and ends. Its state file then names a framework that is gone: start
    the next one with a new --state.

    \b
      mesos-gpu teardown mesos_gpu --master 10.0.0.2:5050
    """
    asked = Master(master, credentials)
    one = chosen(_frameworks(asked), framework)
    name, count = f"{one['name']} ({one['id']})", len(one.get("tasks", ()))
    alive = "; its scheduler is connected" if one.get("connected") else ""
    output.ask(f"End framework {name} and its {counted(count, 'task')}{alive}?", yes=yes, shown=True)
    order = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": one["id"]}}}
    asked.call(order)
    deadline = time.monotonic() + GONE_S
    while any(each["id"] == one["id"] for each in _frameworks(asked)):
        if time.monotonic() > deadline:
            raise Unavailable(f"the master still has {name} after {GONE_S:g} s", remedy="look at its log")
        time.sleep(_LOOK_S)
    if as_json:
        output.document({"id": one["id"], "name": one["name"], "tasks": count})
    else:
        output.line(f"{name} has ended, with {counted(count, 'task')}")


def chosen(frameworks: list[dict[str, Any]], asked: str) -> Mapping[str, Any]:
    """The framework of this id, else the only one of this name.

    Raises:
        NotFound: There is none; those that there are are named.
        Conflict: Several have the name.
    """
    of_this_id = [each for each in frameworks if each["id"] == asked]
    matching = of_this_id or [each for each in frameworks if each["name"] == asked]
    there = ", ".join(f"{each['name']} ({each['id']})" for each in frameworks) or "none"
    if not matching:
        raise NotFound(f"the master has no framework {asked!r}", remedy=f"it has: {there}")
    if len(matching) > 1:
        raise Conflict(
            f"{len(matching)} frameworks are called {asked!r}", remedy=f"name one by its id: {there}"
        )
    return matching[0]


def _frameworks(master: Master) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = master.get("/master/frameworks", "frameworks")
    return listed
