"""`mesos-gpu port-forward`: ports of a running job, on this machine."""

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
    """A port here, or any for 0, and one of the job."""

    name = "ports"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Read PORT or LOCAL:PORT."""
        if isinstance(value, tuple):
            return value
        local, colon, there = value.rpartition(":")
        numbers = [int(each) if each.isascii() and each.isdigit() else -1 for each in (local or there, there)]
        if (colon and not local) or not 0 <= numbers[0] <= _LAST_PORT or not 1 <= numbers[1] <= _LAST_PORT:
            self.fail(f"{value!r} is no port from 1 to {_LAST_PORT}, or two as 8080:80", param, ctx)
        return numbers[0], numbers[1]


@click.command("port-forward")
@click.argument("job_id", metavar="JOB", type=ACTIVE_JOB)
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True, type=Ports())
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", default=0, help="Which of the job's tasks; default: 0."
)
@click.option(
    "--address", default=LOOPBACK, show_default=True, help="Address of this machine at which to listen."
)
@api_command
def port_forward(app: App, job_id: str, ports: tuple[tuple[int, int], ...], rank: int, address: str) -> None:
    """Reach ports of a running job from this machine.

    What connects to LOCAL here reaches PORT at the job's own addresses, 127.0.0.1 first, as if it was made by a command
    of the job: with its user, in its network, and nowhere that it may not reach. Where another process of the host
    listens at PORT, and not the job, the connection is refused. LOCAL is PORT if it is not given, 0 takes any that is
    free. It ends with the job, or with Ctrl-C.

    \b
      mesos-gpu port-forward train-1a2b3c4d 6006
      mesos-gpu port-forward train-1a2b3c4d --rank 1 8080:80 9000
    """
    app.client().job(job_id)  # a wrong name is an error before a port that is taken
    with contextlib.ExitStack() as held:
        listeners = [(held.enter_context(listening(address, local)), port) for local, port in ports]

        def tell() -> None:
            for listener, port in listeners:
                output.note(f"{place_of(listener)} leads to port {port} of {job_id}")

        code = forward(app, job_id, rank, listeners, opened=tell)
    click.get_current_context().exit(code)


def listening(address: str, port: int) -> "socket.socket":
    """A socket that listens here.

    Raises:
        Conflict: It cannot.
    """
    import socket

    from mesos_gpu.errors import Conflict

    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        what = f"cannot listen on {address}:{port}: {error.strerror}"
        raise Conflict(what, remedy="choose another one, as 0:PORT for any, or end what uses it") from error


def place_of(listener: "socket.socket") -> str:
    """Where it listens, as in a URL."""
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
    """Carry what connects to these, each to a port of the job, until the job ends; an exit code.

    Args:
        app, job_id, rank, listeners: To whose task, and from where to which of its ports.
        refused: Is told why the job cannot be connected to.
        opened: Is called when there is a way to the task.

    Raises:
        Conflict, Unreachable, BadAnswer: As of `Session.run`.
    """
    from mesos_gpu.adapters.tunnel.tunnel import Tunnel
    from mesos_gpu.api.spec.tasks.channel import Channel
    from mesos_gpu.cli.channel.line import open_line
    from mesos_gpu.cli.channel.session import Session
    from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable

    asked = {"ports": sorted({port for _, port in listeners}), "rank": rank}
    channel = app.client().call("POST", f"/v1/jobs/{quote(job_id, safe='')}/forward", Channel, body=asked)
    with contextlib.ExitStack() as held:
        line = open_line(app.reach(), channel)
        held.callback(line.close)
        opened()
        from_job, to_session = os.pipe()
        from_session, to_job = os.pipe()
        tunnel = Tunnel(from_job, to_job, refused=refused)
        for listener, port in listeners:
            tunnel.listen(listener, port)
        carrier = _Carrier(tunnel, line, (from_job, to_job))
        carrier.start()
        held.callback(os.close, from_session)
        held.callback(carrier.join)
        held.callback(os.close, to_session)  # with it ends what the carrier reads
        try:
            return Session(line, stdin=from_session, stdout=to_session, passes_signals=False).run()
        except (Unreachable, BrokenPipeError) as error:
            if carrier.broken is None:
                raise
            what = f"what comes from the task cannot be carried: {carrier.broken}"
            raise BadAnswer(what, remedy="use the client of the scheduler's release") from error


class _Carrier(threading.Thread):
    """Runs a tunnel. When that ends, its files are closed, and so is the channel: nobody waits for a tunnel that broke.

    Attributes:
        broken: Why it ended before its stream did; None: it did not.
    """

    def __init__(self, tunnel: "Tunnel", line: "ClientConnection", files: Sequence[int]) -> None:
        """Nothing is carried yet. `files`: of the tunnel."""
        super().__init__(name="tunnel", daemon=True)
        self.broken: Exception | None = None
        self._tunnel, self._line, self._files = tunnel, line, files

    def run(self) -> None:
        """Carry."""
        try:
            self._tunnel.run()
        except (OSError, ValueError) as error:
            self.broken = error
        finally:
            for each in self._files:
                os.close(each)
            self._line.close()
