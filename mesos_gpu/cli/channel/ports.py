"""`mesos-gpu port-forward`: local ports that lead to ports of a running job."""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import ACTIVE_JOB

if TYPE_CHECKING:
    import socket

    from websockets.sync.client import ClientConnection

    from mesos_gpu.adapters.tunnel.tunnel import Tunnel

LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65535


class Ports(click.ParamType[tuple[int, int]]):
    """A pair of a local port (0 for any free one) and a port of the job."""

    name = "ports"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse PORT or LOCAL:PORT."""
        if isinstance(value, tuple):
            return value
        local, colon, there = value.rpartition(":")
        numbers = [int(text) if text.isascii() and text.isdigit() else -1 for text in (local or there, there)]
        if (colon and not local) or not 0 <= numbers[0] <= _LAST_PORT or not 1 <= numbers[1] <= _LAST_PORT:
            self.fail(
                f"{value!r} is not a port from 1 to {_LAST_PORT}, or a pair such as 8080:80", param, ctx
            )
        return numbers[0], numbers[1]


@click.command("port-forward")
@click.argument("job_id", metavar="JOB", type=ACTIVE_JOB)
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True, type=Ports())
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", default=0, help="Rank of the task; default: 0."
)
@click.option("--address", default=LOOPBACK, show_default=True, help="Local address to listen on.")
@api_command
def port_forward(app: App, job_id: str, ports: tuple[tuple[int, int], ...], rank: int, address: str) -> None:
    """Forward local ports to a running job.

    Connections to LOCAL on this machine reach PORT of the job, on 127.0.0.1 first, like connections of the job itself:
    with its user, network and restrictions. If another process of the host listens on PORT, they are refused. LOCAL is
    PORT by default, 0 takes any free port. Forwarding ends with the job, or with Ctrl-C.

    \b
      mesos-gpu port-forward train-1a2b3c4d 6006
      mesos-gpu port-forward train-1a2b3c4d --rank 1 8080:80 9000
    """
    app.client().job(job_id)  # report a wrong job before an occupied port
    with contextlib.ExitStack() as resources:
        listeners = [(resources.enter_context(listening(address, local)), port) for local, port in ports]

        def tell() -> None:
            for listener, port in listeners:
                output.note(f"{place_of(listener)} forwards to port {port} of {job_id}")

        code = forward(app, job_id, rank, listeners, opened=tell)
    click.get_current_context().exit(code)


def listening(address: str, port: int) -> "socket.socket":
    """Return a listening socket.

    Raises:
        Conflict: The port cannot be opened.
    """
    import socket

    from mesos_gpu.errors import Conflict

    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        what = f"cannot listen on {address}:{port}: {error.strerror}"
        raise Conflict(
            what, remedy="choose another port, 0:PORT for any free one, or stop the program that uses it"
        ) from error


def place_of(listener: "socket.socket") -> str:
    """Return the listening address in the form HOST:PORT of URLs."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def forward(
    app: App,
    job_id: str,
    rank: int,
    listeners: "Sequence[tuple[socket.socket, int]]",
    refused: Callable[[str], None] = output.note,
    opened: Callable[[], None] = lambda: None,
) -> int:
    """Forward connections of listeners to ports of a job until the job ends; return an exit code.

    Args:
        app: Context of the command.
        job_id: Job to connect to.
        rank: Rank of the job's task.
        listeners: Pairs of a listening socket and a port of the job.
        refused: Function that is called with the reason if a connection to the job fails.
        opened: Function that is called once the channel is open.

    Raises:
        Conflict, Unreachable, BadAnswer: Raised by `Session.run`.
    """
    from mesos_gpu.adapters.tunnel.tunnel import Tunnel
    from mesos_gpu.api.spec.tasks.channel import Channel
    from mesos_gpu.cli.channel.line import open_line
    from mesos_gpu.cli.channel.session import Session
    from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable

    body = {"ports": sorted({port for _, port in listeners}), "rank": rank}
    channel = app.client().call("POST", f"/v1/jobs/{quote(job_id, safe='')}/forward", Channel, body=body)
    with contextlib.ExitStack() as resources:
        line = open_line(app.reach(), channel)
        resources.callback(line.close)
        opened()
        from_job, to_session = os.pipe()
        from_session, to_job = os.pipe()
        tunnel = Tunnel(from_job, to_job, refused=refused)
        for listener, port in listeners:
            tunnel.listen(listener, port)
        carrier = _Carrier(tunnel, line, (from_job, to_job))
        carrier.start()
        resources.callback(os.close, from_session)
        resources.callback(carrier.join)
        resources.callback(os.close, to_session)  # ends the carrier's input
        try:
            return Session(line, stdin=from_session, stdout=to_session, passes_signals=False).run()
        except (Unreachable, BrokenPipeError) as error:
            if carrier.broken is None:
                raise
            what = f"data from the task is invalid: {carrier.broken}"
            raise BadAnswer(what, remedy="use a client of the scheduler's release") from error


class _Carrier(threading.Thread):
    """Thread that runs a tunnel; at its end it closes the tunnel's files and the channel.

    Args:
        tunnel: Tunnel to run.
        line: Connection of the channel.
        files: File descriptors of the tunnel.

    Attributes:
        broken: Error that ended the tunnel before its stream ended; None otherwise.
    """

    def __init__(self, tunnel: "Tunnel", line: "ClientConnection", files: Sequence[int]) -> None:
        super().__init__(name="tunnel", daemon=True)
        self.broken: Exception | None = None
        self._tunnel, self._line, self._files = tunnel, line, files

    def run(self) -> None:
        """Run the tunnel until it ends."""
        try:
            self._tunnel.run()
        except (OSError, ValueError) as error:
            self.broken = error
        finally:
            for descriptor in self._files:
                os.close(descriptor)
            self._line.close()
