"""`mesos-gpu notebook`: a server that runs as a job, and is reached from here."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.jobs.groups import Grouped
from mesos_gpu.cli.jobs.options import by_options, job_options, request_of, upload_option

if TYPE_CHECKING:
    import socket

    from mesos_gpu.api.spec.shapes import Job
    from mesos_gpu.cli.client import Client

_AT: Final = "--ip=127.0.0.1 --port=$PORT0 --ServerApp.port_retries=0 --ServerApp.base_url=/"
#: Its token is JUPYTER_TOKEN of its environment, so that it is in no list of processes. Images have the home of a user
#: of their own, in which the job's user may not write, and Jupyter does not start without one.
JUPYTER: Final = (
    f'test -w "${{HOME:-/}}" || export HOME="$MESOS_SANDBOX"; exec jupyter lab --no-browser {_AT}'
)
_ASK_S: Final = 0.3
_PATIENCE_S: Final = 20.0  # without an answer, before it is told that none comes
_NOT_FOUND: Final = 127  # exit code of a shell for a program that is not there
_NOT_YET: Final = "Connection refused"  # text of ECONNREFUSED from a host
_END_S: Final = 10.0  # for the news that it has ended, which its connection brings first


@click.command(cls=Grouped, context_settings={"allow_interspersed_args": False})
@job_options()
@upload_option
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh -c as one line.")
@click.option(
    "--local-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=0,
    help="Port of this machine; default: any that is free.",
)
@click.option(
    "-d", "--detach", is_flag=True, help="Print the job's ID, the token after it, and leave it to itself."
)
@click.argument("cmd", metavar="[CMD...]", nargs=-1, type=click.UNPROCESSED)
@api_command
def notebook(
    app: App,
    upload: Path | None,
    shell: bool,
    local_port: int,
    detach: bool,
    cmd: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a notebook server as a job, and reach it from here.

    When the server answers and takes the token that is made for it, its URL on this machine is printed. Without CMD it
    is `jupyter lab`, which the job's host or image must have. A CMD is told its port and the token as PORT0 and
    JUPYTER_TOKEN, and has to listen at 127.0.0.1. What listens there and is not proved to be the job's gets neither
    token nor request. Ctrl-C kills the job. With -d it is reached by `port-forward`.

    \b
      mesos-gpu notebook --gpus 1 --mem 16GiB --image quay.io/jupyter/pytorch-notebook
      mesos-gpu notebook --upload . --gpus 0.5 --timeout 8h
      mesos-gpu notebook --shell -- 'exec python3 -m http.server --bind 127.0.0.1 $PORT0'
    """
    import secrets

    from mesos_gpu.cli.channel.ports import LOOPBACK, listening
    from mesos_gpu.cli.interrupt import held_interrupt

    request = request_of(cmd, options, shell=shell)  # nosec B604 # a field of the job, no call of a shell
    if not cmd:
        request["command"] = JUPYTER
    request.setdefault(
        "name", "notebook"
    )  # and not the first word of the command, which is of no use in lists
    if request.get("tasks", 1) != 1:
        raise click.UsageError("a notebook is a job of one task")
    request["env"] = {"JUPYTER_TOKEN": secrets.token_urlsafe(24), **request.get("env", {})}
    request.setdefault("ports", [0])
    if upload is not None:
        from mesos_gpu.cli.code import send

        request["upload"] = send.upload(app.client(), upload)
    if detach:
        with by_options(), held_interrupt():
            output.line(f"{app.client().submit(request)['id']} {request['env']['JUPYTER_TOKEN']}")
        return
    with listening(LOOPBACK, local_port) as listener, by_options():
        code = _serve(app, request, listener, is_jupyter=not cmd)
    click.get_current_context().exit(code)


def _serve(app: App, request: dict[str, Any], listener: "socket.socket", *, is_jupyter: bool) -> int:
    from mesos_gpu.cli.channel.interactive import told_end, with_job
    from mesos_gpu.cli.channel.ports import place_of

    token, client = request["env"]["JUPYTER_TOKEN"], app.client()
    url = f"http://{place_of(listener)}/?token={token}"

    def serve(job: "Job") -> int:
        port = client.tasks(job["id"])[0]["ports"][0]
        teller = _Teller(listener.getsockname()[:2], token, job["id"], port, url, is_jupyter)
        threading.Thread(target=teller.run, name="url", daemon=True).start()
        return told_end(_reached(app, client, job, (listener, port), teller.refused))

    code = with_job(client, request, serve, names_it=True)
    if is_jupyter and code == _NOT_FOUND:
        output.note(
            "Jupyter is not there: name an --image that has it, as quay.io/jupyter/base-notebook, or the directory of "
            "one of the hosts with --env PATH=DIR:/usr/bin:/bin"
        )
    return code


def _reached(
    app: App, client: "Client", job: "Job", way: "tuple[socket.socket, int]", refused: Callable[[str], None]
) -> "Job":
    """Carry connections to a job until the job has ended.

    Args:
        app: Settings of the command line.
        client: Client of the scheduler.
        job: The job.
        way: Listening socket for connections, and the port of the job that they are carried to.
        refused: Called with the reason when a connection to the job was not made.

    Returns:
        The ended job.

    Raises:
        MesosGpuError: It cannot be reached, and has not ended.
    """
    from mesos_gpu.cli.channel.ports import forward
    from mesos_gpu.cli.client import ended
    from mesos_gpu.errors import MesosGpuError

    try:
        forward(app, job["id"], 0, [way], refused=refused)
    except MesosGpuError:
        for latest in client.follow(job, deadline=time.monotonic() + _END_S):
            job = latest
        if not ended(job):
            raise
    return job


@dataclass
class _Teller:
    """Tells where the server is. Of Jupyter that is when it takes the token: until then something else may be there."""

    place: tuple[str, int]
    token: str
    job_id: str
    port: int  # on the job's host
    url: str
    is_jupyter: bool
    _told: str = ""  # the latest refusal

    @property
    def where(self) -> str:
        """The job's port, in words."""
        return f"port {self.port} of job {self.job_id}"

    def run(self) -> None:
        """Print the URL when it leads to the server, and say what is there that is not Jupyter."""
        from mesos_gpu.cli.sessions.answering import asked

        told, quiet_until = "", time.monotonic() + _PATIENCE_S
        while True:
            answer = asked(self.place, self.token)
            if answer is None and time.monotonic() > quiet_until:
                output.note(
                    f"nothing answers yet at {self.where}; what it writes: mesos-gpu logs -f {self.job_id}"
                )
                quiet_until = math.inf
            if answer is not None and answer.said not in ("", told):
                told = answer.said
                output.note(self._warning(told))
            if answer is not None and (answer.is_notebook or not self.is_jupyter):
                output.line(self.url)
                return
            time.sleep(_ASK_S)

    def refused(self, why: str) -> None:
        """Print why a connection to the job was not made; nothing if it only does not listen yet or was printed."""
        if why not in ("", self._told) and not why.endswith(_NOT_YET):
            self._told = why
            output.note(f"nothing was sent to {self.where}, and the token is kept back: {why}")

    def _warning(self, said: str) -> str:
        if self.is_jupyter:
            return f"what answers at {self.where} is not its Jupyter, which is waited for: {said}"
        open_to = "unless it asks for the token, everybody on its host can use it"
        return f"what answers at {self.where} is no Jupyter: {said}; {open_to}"
