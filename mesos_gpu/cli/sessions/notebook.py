"""`mesos-gpu notebook`: a server that runs as a job, and is reached from here."""

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.jobs.groups import Grouped
from mesos_gpu.cli.jobs.options import by_options, job_options, request_of

if TYPE_CHECKING:
    import socket

    from mesos_gpu.api.spec.shapes import Job
    from mesos_gpu.cli.client import Client

#: Its token is JUPYTER_TOKEN of its environment, so that it is in no list of processes.
JUPYTER: Final = 'exec jupyter lab --no-browser --ip=127.0.0.1 --port="$PORT0" --ServerApp.port_retries=0'
_ASK_S: Final = 0.3
_END_S: Final = 10.0  # for the news that it has ended, which its connection brings first


@click.command(cls=Grouped, context_settings={"allow_interspersed_args": False})
@job_options()
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh -c as one line.")
@click.option(
    "--local-port", type=click.IntRange(0, 65535), default=0, help="Here; default: any that is free."
)
@click.option(
    "-d", "--detach", is_flag=True, help="Print the job's ID, the token after it, and leave it to itself."
)
@click.argument("cmd", metavar="[CMD...]", nargs=-1, type=click.UNPROCESSED)
@api_command
def notebook(
    app: App, shell: bool, local_port: int, detach: bool, cmd: tuple[str, ...], **options: Any
) -> None:
    """Run a notebook server as a job, and reach it from here.

    When the server answers, its URL on this machine is printed, with a token that is made for it. Without CMD it is
    `jupyter lab`, which the job's host or image must have. A CMD is told its port and the token as PORT0 and
    JUPYTER_TOKEN, and has to listen at 127.0.0.1. Ctrl-C kills the job. With -d it is reached by `port-forward`.

    \b
      mesos-gpu notebook --gpus 1 --mem 16GiB --image quay.io/jupyter/pytorch-notebook
      mesos-gpu notebook --shell -- 'exec python3 -m http.server --bind 127.0.0.1 $PORT0'
    """
    import secrets

    from mesos_gpu.cli.channel.ports import LOOPBACK, listening
    from mesos_gpu.cli.interrupt import held_interrupt

    request = request_of(cmd, options, shell=shell)  # nosec B604 # a field of the job, no call of a shell
    if not cmd:
        request["command"] = JUPYTER
    if request.get("tasks", 1) != 1:
        raise click.UsageError("a notebook is a job of one task")
    request["env"] = {"JUPYTER_TOKEN": secrets.token_urlsafe(24), **request.get("env", {})}
    request.setdefault("ports", [0])
    if detach:
        with by_options(), held_interrupt():
            output.line(f"{app.client().submit(request)['id']} {request['env']['JUPYTER_TOKEN']}")
        return
    with listening(LOOPBACK, local_port) as listener, by_options():
        code = _serve(app, request, listener)
    click.get_current_context().exit(code)


def _serve(app: App, request: dict[str, Any], listener: "socket.socket") -> int:
    from mesos_gpu.cli.channel.interactive import told_end, with_job
    from mesos_gpu.cli.channel.ports import place_of

    url, client = f"http://{place_of(listener)}/?token={request['env']['JUPYTER_TOKEN']}", app.client()

    def serve(job: "Job") -> int:
        return told_end(_reached(app, client, job, listener, url))

    return with_job(client, request, serve, names_it=True)


def _reached(app: App, client: "Client", job: "Job", listener: "socket.socket", url: str) -> "Job":
    """Carry connections to it until it has ended; the job as it is then.

    Raises:
        MesosGpuError: It cannot be reached, and has not ended.
    """
    from mesos_gpu.cli.channel.ports import forward
    from mesos_gpu.cli.client import ended
    from mesos_gpu.errors import MesosGpuError

    place = listener.getsockname()[:2]
    threading.Thread(target=_tell, args=(place, url), name="url", daemon=True).start()
    port = client.tasks(job["id"])[0]["ports"][0]
    try:
        forward(app, job["id"], 0, [(listener, port)], refused=lambda _: None)
    except MesosGpuError:
        for latest in client.follow(job, deadline=time.monotonic() + _END_S):
            job = latest
        if not ended(job):
            raise
    return job


def _tell(place: tuple[str, int], url: str) -> None:
    """Print the URL when something answers there, in HTTP."""
    import http.client

    while True:
        line = http.client.HTTPConnection(*place, timeout=_ASK_S * 10)
        try:
            line.request("GET", "/")
            line.getresponse()
        except (OSError, http.client.HTTPException):  # it does not listen yet
            time.sleep(_ASK_S)
            continue
        finally:
            line.close()
        output.line(url)
        return
