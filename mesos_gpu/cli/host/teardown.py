"""`mesos-gpu teardown`: end a framework at Mesos' master. It asks no scheduler: that may be gone for good."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from isolator.agent.tls import AgentTls
from isolator.node.mesos_access import Daemon
from mesos_gpu.adapters.credentials import read
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.errors import BadConfiguration, Conflict, NotFound, Unavailable
from mesos_gpu.model.words import counted
from mesos_gpu.wire.body import parsed

GONE_S: Final = 30.0  # until the master no longer lists it
_LOOK_S: Final = 0.1


@click.command()
@click.argument("framework", metavar="ID|NAME")
@click.option(
    "--master",
    required=True,
    metavar="HOST:PORT",
    envvar="MESOS_GPU_MASTER",
    help="The Mesos master that leads.",
)
@click.option(
    "--mesos-credentials",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Principal and secret of who may end frameworks there.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def teardown(framework: str, master: str, mesos_credentials: Path | None, yes: bool, as_json: bool) -> None:
    """End a framework at the master: all its tasks end, and its id is never taken again.

    A scheduler that still runs is told so, and ends. Its state file then names a framework that is gone: start
    the next one with a new --state.

    \b
      mesos-gpu teardown mesos_gpu --master 10.0.0.2:5050
    """
    proof = {"Authorization": read(mesos_credentials).header} if mesos_credentials else {}
    endpoint = master.partition("://")[2] or master
    daemon = Daemon("master", endpoint, AgentTls.from_environment(os.environ), proof)
    one = chosen(_frameworks(daemon), framework)
    name, count = f"{one['name']} ({one['id']})", len(one.get("tasks", ()))
    if not yes:
        alive = "; its scheduler is connected" if one.get("connected") else ""
        click.confirm(f"End framework {name} and its {counted(count, 'task')}{alive}?", abort=True, err=True)
    order = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": one["id"]}}}
    _answer(daemon, "POST", "/api/v1", json.dumps(order).encode())
    deadline = time.monotonic() + GONE_S
    while any(each["id"] == one["id"] for each in _frameworks(daemon)):
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


def _frameworks(daemon: Daemon) -> list[dict[str, Any]]:
    body = _answer(daemon, "GET", "/master/frameworks", b"")
    try:
        listed: list[dict[str, Any]] = parsed(body)["frameworks"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"{daemon.endpoint} is no Mesos master", remedy="name its HOST:PORT") from error
    return listed


def _answer(daemon: Daemon, method: str, path: str, body: bytes) -> bytes:
    try:
        status, said = daemon.ask(method, path, body, daemon.authorization)
    except OSError as error:
        what = f"the master {daemon.endpoint} does not answer: {error}"
        raise Unavailable(what, remedy="see that it runs, and that --master names its HOST:PORT") from error
    if status in (200, 202):
        return said
    if status in (401, 403):
        raise BadConfiguration(
            f"the master {daemon.endpoint} refuses: {status}",
            remedy="name the file of a principal that may end frameworks: --mesos-credentials",
        )
    if status in (307, 503):
        raise Unavailable(f"{daemon.endpoint} is not the leading master", remedy="name the one that leads")
    text = said[:300].decode(errors="replace")
    raise Unavailable(f"the master {daemon.endpoint} answers {status}: {text}", remedy="look at its log")
