"""`mesos-gpu queue hold|resume|drain`: whether a queue is served."""

from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.versioned.changing import comment_option
from mesos_gpu.model.tenancy import Stop

_SAID = {
    Stop.HOLD: "nothing of it starts, and what runs goes on",
    Stop.DRAIN: "nothing of it starts, and what runs is ended with notice and waits",
    Stop.NONE: "its jobs start again",
}


@click.command()
@click.argument("path")
@comment_option
@json_option
@api_command
def hold(app: App, path: str, comment: str, as_json: bool) -> None:
    """Let nothing of a queue start; what runs goes on.

    That is so for all queues below it, too, until `resume`.
    """
    _stop(app, path, Stop.HOLD, comment, as_json=as_json)


@click.command()
@click.argument("path")
@comment_option
@json_option
@api_command
def drain(app: App, path: str, comment: str, as_json: bool) -> None:
    """Let nothing of a queue start, and end what runs, with notice.

    Ended jobs wait in the queue until `resume`. That is so for all queues below it, too.
    """
    _stop(app, path, Stop.DRAIN, comment, as_json=as_json)


@click.command()
@click.argument("path")
@comment_option
@json_option
@api_command
def resume(app: App, path: str, comment: str, as_json: bool) -> None:
    """Serve a queue again after `hold` or `drain`.

    A queue above it that is held or drained keeps it from being served.
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
        output.line(f"{path}: that is so already.")
    else:
        output.line(f"{path}: {_SAID[stop]}.")
    for warning in now.get("warnings", ()):
        output.note(warning)
