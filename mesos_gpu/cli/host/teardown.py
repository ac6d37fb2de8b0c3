"""`mesos-gpu teardown`: end a framework at Mesos' master, without its scheduler, which may be gone for good."""

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

GONE_S: Final = 30.0  # timeout for the framework to disappear
_LOOK_S: Final = 0.1


@click.command()
@click.argument("framework", metavar="ID|NAME")
@master_options
@yes_option
@json_option
def teardown(framework: str, master: str, credentials: Path | None, yes: bool, as_json: bool) -> None:
    """Tear down a framework at the master, which ends all its tasks for good.

    Its framework ID cannot be used again. A running scheduler is notified and exits. Its state file then names a
    removed framework: start the next scheduler with a new --state.

    \b
      mesos-gpu teardown mesos_gpu --master 10.0.0.2:5050
    """
    client = Master(master, credentials)
    match = chosen(_frameworks(client), framework)
    name, count = f"{match['name']} ({match['id']})", len(match.get("tasks", ()))
    alive = "; its scheduler is connected" if match.get("connected") else ""
    output.ask(f"End framework {name} and its {counted(count, 'task')}{alive}?", yes=yes, shown=True)
    order = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": match["id"]}}}
    client.call(order)
    deadline = time.monotonic() + GONE_S
    while any(framework_now["id"] == match["id"] for framework_now in _frameworks(client)):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the master still has {name} after {GONE_S:g} s", remedy="look at the master's log"
            )
        time.sleep(_LOOK_S)
    if as_json:
        output.document({"id": match["id"], "name": match["name"], "tasks": count})
    else:
        output.line(f"{name} has ended, with {counted(count, 'task')}")


def chosen(frameworks: list[dict[str, Any]], asked: str) -> Mapping[str, Any]:
    """Return the framework with this id, else the only one with this name.

    Raises:
        NotFound: No framework matches; the existing ones are listed.
        Conflict: Several have the name.
    """
    of_this_id = [framework for framework in frameworks if framework["id"] == asked]
    matching = of_this_id or [framework for framework in frameworks if framework["name"] == asked]
    there = ", ".join(f"{framework['name']} ({framework['id']})" for framework in frameworks) or "none"
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
