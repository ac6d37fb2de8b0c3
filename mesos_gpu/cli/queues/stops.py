"""`mesos-gpu queue hold|resume|drain`: stop and resume the launches of a queue."""

from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.versioned.changing import comment_option
from mesos_gpu.model.tenancy import Stop
from mesos_gpu.policy.tenancy.tree import lineage

_SAID = {
    Stop.HOLD: "no job of it starts, running jobs continue",
    Stop.DRAIN: "no job of it starts, running jobs are ended with notice and wait",
    Stop.NONE: "its jobs start again",
}
_NOW = {Stop.HOLD: "on hold", Stop.DRAIN: "drained"}


@click.command()
@click.argument("path")
@comment_option
@json_option
@api_command
def hold(app: App, path: str, comment: str, as_json: bool) -> None:
    """Stop launches of a queue; running jobs continue.

    This applies to all queues below it too, until `resume`.
    """
    _stop(app, path, Stop.HOLD, comment, as_json=as_json)


@click.command()
@click.argument("path")
@comment_option
@yes_option
@json_option
@api_command
def drain(app: App, path: str, comment: str, yes: bool, as_json: bool) -> None:
    """Stop launches of a queue, and end its running jobs, with notice.

    Ended jobs wait in the queue until `resume`. This applies to all queues below it too.
    """
    output.ask(f"End all jobs in queue {path} and the queues below it, with notice?", yes=yes)
    _stop(app, path, Stop.DRAIN, comment, as_json=as_json)


@click.command()
@click.argument("path")
@comment_option
@json_option
@api_command
def resume(app: App, path: str, comment: str, as_json: bool) -> None:
    """Resume launches of a queue after `hold` or `drain`.

    The queue stays stopped if a queue above it is held or drained.
    """
    _stop(app, path, Stop.NONE, comment, as_json=as_json)


def _stop(app: App, path: str, stop: Stop, comment: str, *, as_json: bool) -> None:
    client, route = app.client(), f"/v1/queues/{quote(path)}"
    before = client.call("GET", route, dict)
    body = {"version": before["version"], "stop": stop.value, **({"comment": comment} if comment else {})}
    now = client.call("PATCH", route, dict, body=body)
    if as_json:
        output.document(now)
    elif now["version"] == before["version"]:
        output.line(f"{path}: already in that state.")
    else:
        held = _held_above(client, path) if stop is Stop.NONE else None
        output.line(f"{path}: {_SAID[stop] if held is None else held}.")
    for warning in now.get("warnings", ()):
        output.note(warning)


def _held_above(client: Client, path: str) -> str | None:
    """Return a message naming the stopped queue above `path`; None if no queue above it is stopped."""
    queues = client.call("GET", "/v1/queues", dict)["queues"]
    for above in lineage(path)[1:]:
        stop = Stop(queues[above]["stop"]) if above in queues else Stop.NONE
        if stop is not Stop.NONE:
            return f"no job of it starts, because {above} is {_NOW[stop]} (mesos-gpu queue resume {above})"
    return None
