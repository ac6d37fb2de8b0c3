"""`mesos-gpu notebook`: a server that runs as a job, with a local URL."""

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
#: The token is in JUPYTER_TOKEN, so that it appears in no process list. HOME of images may not be writable for the
#: job's user, and Jupyter needs a writable one to start.
JUPYTER: Final = (
    f'test -w "${{HOME:-/}}" || export HOME="$MESOS_SANDBOX"; exec jupyter lab --no-browser {_AT}'
)
_ASK_S: Final = 0.3
_PATIENCE_S: Final = 20.0  # time without an answer before a note is printed
_NOT_FOUND: Final = 127  # exit code of a shell for a missing program
_NOT_YET: Final = "Connection refused"  # text of ECONNREFUSED from a host
_END_S: Final = 10.0  # time to wait for the job's end after its connection ended


@click.command(cls=Grouped, context_settings={"allow_interspersed_args": False})
@job_options()
@upload_option
@click.option("--shell", is_flag=True, help="Run the words as one line of /bin/sh -c.")
@click.option(
    "--local-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=0,
    help="Local port; default: any free port.",
)
@click.option(
    "-d", "--detach", is_flag=True, help="Print the job's ID and the token, and do not follow the job."
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
    """Run a notebook server as a job, and open a local URL to it.

    The URL is printed when the server answers and accepts its generated token. Without CMD the server is `jupyter lab`,
    which the job's host or image must provide. A CMD gets port and token in PORT0 and JUPYTER_TOKEN, and must listen on
    127.0.0.1. A server on that port that is not proved to be the job's gets neither token nor requests. Ctrl-C kills
    the job. With -d, use `port-forward` to reach it.

    \b
      mesos-gpu notebook --gpus 1 --mem 16GiB --image quay.io/jupyter/pytorch-notebook
      mesos-gpu notebook --upload . --gpus 0.5 --timeout 8h
      mesos-gpu notebook --shell -- 'exec python3 -m http.server --bind 127.0.0.1 $PORT0'
    """
    import secrets

    from mesos_gpu.cli.channel.ports import LOOPBACK, listening
    from mesos_gpu.cli.interrupt import held_interrupt

    request = request_of(cmd, options, shell=shell)  # nosec B604 # a field of the job, not a call of a shell
    if not cmd:
        request["command"] = JUPYTER
    # The default name would be the first word of the command, which says little in lists.
    request.setdefault("name", "notebook")
    if request.get("tasks", 1) != 1:
        raise click.UsageError("a notebook is a job with one task: remove --tasks")
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
    """Submit the notebook job, print its URL when it answers, and forward connections until it ends."""
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
            "Jupyter was not found: choose an --image that contains it, such as quay.io/jupyter/base-notebook, or "
            "give its "
            "directory on the hosts with --env PATH=DIR:/usr/bin:/bin"
        )
    return code


def _reached(
    app: App, client: "Client", job: "Job", way: "tuple[socket.socket, int]", refused: Callable[[str], None]
) -> "Job":
    """Forward connections to a job until the job has ended.

    Args:
        app: Context of the command.
        client: Client of the scheduler.
        job: Job that runs the server.
        way: Listening socket, and the port of the job that its connections lead to.
        refused: Function that is called with the reason if a connection to the job fails.

    Returns:
        The ended job.

    Raises:
        MesosGpuError: The job cannot be reached, and has not ended.
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
    """Prints the URL of the server; for Jupyter only when it accepts the token, as another program may answer
    before."""

    place: tuple[str, int]
    token: str
    job_id: str
    port: int  # port on the job's host
    url: str
    is_jupyter: bool
    _told: str = ""  # the latest refusal

    @property
    def where(self) -> str:
        """Description of the job's port."""
        return f"port {self.port} of job {self.job_id}"

    def run(self) -> None:
        """Print the URL when the server answers, and notes about other servers on the port."""
        from mesos_gpu.cli.sessions.answering import asked

        last_note, quiet_until = "", time.monotonic() + _PATIENCE_S
        while True:
            answer = asked(self.place, self.token)
            if answer is None and time.monotonic() > quiet_until:
                output.note(
                    f"no server answers yet at {self.where}; for its output: mesos-gpu logs -f {self.job_id}"
                )
                quiet_until = math.inf
            if answer is not None and answer.said not in ("", last_note):
                last_note = answer.said
                output.note(self._warning(last_note))
            if answer is not None and (answer.is_notebook or not self.is_jupyter):
                output.line(self.url)
                return
            time.sleep(_ASK_S)

    def refused(self, why: str) -> None:
        """Print why a connection to the job failed, except if it was printed already or the job does not listen yet."""
        if why not in ("", self._told) and not why.endswith(_NOT_YET):
            self._told = why
            output.note(f"nothing was sent to {self.where}, and the token is not sent: {why}")

    def _warning(self, said: str) -> str:
        if self.is_jupyter:
            return f"the server at {self.where} is not the job's Jupyter, still waiting for it: {said}"
        open_to = "unless it requires the token, all users of its host can use it"
        return f"the server at {self.where} is not Jupyter: {said}; {open_to}"
