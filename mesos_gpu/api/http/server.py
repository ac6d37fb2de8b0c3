"""The HTTP server, on its own thread."""

import asyncio
import contextlib
import socket
import threading
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.applications import Starlette

from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.api.http.bounds import Bounded, ConnectionLimits, connections, on_trouble
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.api.http.tls_listener import TlsListener
from mesos_gpu.api.websocket import BoundedWebSocket
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.wire.channel.frames import MAX_FRAME

BACKLOG: Final = 1024  # connections that the kernel queues until they are accepted
TAKEN_AT_ONCE: Final = 8  # connections accepted in one turn of the event loop
TICK_S: Final = 1.0
_MIN_LOOK_S: Final = 0.001  # between two checks whether connections have closed
_MAX_LOOK_S: Final = 0.1
RETIRE_S: Final = 60.0  # for pending answers when client certificates must be verified again


class _Uvicorn(uvicorn.Server):
    """Uvicorn server that signals when it serves, and ends waiting requests before it shuts down."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: Starlette,
        crowd: ConnectionLimits,
        tls: ReloadedTls | None,
        local: LocalSocket | None,
    ) -> None:
        super().__init__(config)
        self._local, self._crowd = local, crowd
        self.settled = threading.Event()  # set when it serves or has failed to start
        self._app, self._tls = app, tls
        self._listeners: list[TlsListener] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self._left = asyncio.Event()

    def leave(self) -> None:
        """End the server, from any thread."""
        self.should_exit = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._left.set)

    async def main_loop(self) -> None:
        """Run until the server is to end, and update the date of answers each second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), TICK_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve on the given sockets, with TLS if it is set, and on the Unix socket."""
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(on_trouble)
        plain = list(sockets or ()) if self._tls is None else []
        if self._local is not None:
            plain.append(self._local.listener)
        await super().startup(sockets=plain)
        for listener in plain:
            listener.listen(BACKLOG)  # asyncio has set the backlog to TAKEN_AT_ONCE
        if self._tls is not None and self.started:
            tls = self._tls
            self._listeners = [
                TlsListener(listener, lambda: tls.context, self._protocol, self._crowd)
                for listener in sockets or ()
            ]
            tls.start(self._verify_anew)
        self.settled.set()

    def _protocol(self) -> asyncio.Protocol:
        """Return a new protocol for a connection after its TLS handshake."""
        return self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    def _verify_anew(self) -> None:
        """Close connections with client certificates when their answers are sent: trusted clients reconnect."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._retire)

    def _retire(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, Bounded) and connection.peer is not None:
                connection.retire(RETIRE_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish pending answers within the grace period, and abort the rest."""
        for listener in self._listeners:
            await listener.close()
        self._app.state.leaving = True
        self._app.state.changes.close()
        self._app.state.events.close()
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._finish()
        for task in list(self.server_state.tasks):
            task.cancel()
        await self.lifespan.shutdown()
        for connection in list(self.server_state.connections):  # those that took longer than the grace period
            connection.transport.abort()
        await asyncio.sleep(0)  # lets the callbacks run that close their sockets

    async def _finish(self) -> None:
        """Wait until every answer is given and every connection closed; uvicorn itself would check each 100 ms only."""
        pause_s = _MIN_LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            if not self.server_state.connections and not self.server_state.tasks:
                break
            pause_s = min(2 * pause_s, _MAX_LOOK_S)
        for server in self.servers:
            await server.wait_closed()


class Server:
    """A running server. `url` is its address from this machine."""

    def __init__(
        self,
        app: Starlette,
        listener: socket.socket,
        *,
        crowd: ConnectionLimits | None = None,
        tls: ReloadedTls | None = None,
        local: LocalSocket | None = None,
    ) -> None:
        """Serve on a socket that is already listening.

        Args:
            app: Application from `create_app`.
            listener: Listening socket; closed at the end.
            crowd: Limits of connections; None for the defaults, with a total that depends on RLIMIT_NOFILE.
            tls: Certificates; if set, only TLS is accepted. Stopped at the end.
            local: Unix socket that is served as well, without TLS; closed at the end.

        Raises:
            Unavailable: The application did not start.
        """
        host, self.port = listener.getsockname()[:2]
        here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # nosec B104 # nothing is bound here
        name = here.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"{'http' if tls is None else 'https'}://{name}:{self.port}"
        crowd = crowd or ConnectionLimits(connections())
        config = uvicorn.Config(
            app,
            log_config=None,  # uvicorn logs with the scheduler's configuration
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # do not believe forwarding headers of any peer
            lifespan="on",
            timeout_graceful_shutdown=2,
            http=cast("type[asyncio.Protocol]", partial(Bounded, crowd=crowd)),
            ws=cast(
                "type[asyncio.Protocol]",
                partial(BoundedWebSocket, take_turn=crowd.turns.take, key_of=crowd.key_at),
            ),
            ws_max_size=MAX_FRAME,
            ws_per_message_deflate=False,
            server_header=False,
            backlog=TAKEN_AT_ONCE,
        )
        self._server = _Uvicorn(config, app, crowd, tls, local)
        self._listener, self._tls, self._local = listener, tls, local
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        self._server.settled.wait()
        if not self._server.started:
            self.stop()
            raise Unavailable("the REST interface did not start", remedy="see the scheduler's log")

    def _run(self) -> None:
        try:
            # Server.run would install signal handlers for the process.
            asyncio.run(self._server.serve(sockets=[self._listener]))
        finally:
            self._server.settled.set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that serves."""
        assert self._server.loop is not None, "the loop runs once the server has settled"
        return self._server.loop

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._server.server_state.connections)

    def stop(self) -> None:
        """Finish pending answers, and end the thread."""
        self._server.leave()
        self._thread.join()
        if self._tls is not None:
            self._tls.stop()
        if self._local is not None:
            self._local.close()
        self._listener.close()


def serve(app: Starlette, host: str, port: int, *, tls: ReloadedTls | None = None) -> Server:
    """Serve an application from `create_app` at an address. `tls`: see `Server`.

    Raises:
        Conflict: The address is in use, or not this machine's.
        Unavailable: The application did not start.
    """
    return Server(app, listen(host, port), tls=tls)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket for `Server`; port 0 chooses a free one.

    Raises:
        Conflict: The address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it answers take 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror}",
            remedy="choose another port with --port, or end the process that uses it",
        ) from error
    return listener
