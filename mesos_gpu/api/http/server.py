"""The HTTP server, on a thread of its own."""

import asyncio
import socket
import threading

import uvicorn
from starlette.applications import Starlette

from mesos_gpu.api.http.bounds import Bounded, connections, on_trouble
from mesos_gpu.errors import Conflict, Unavailable


class _Uvicorn(uvicorn.Server):
    """Says when it serves, and lets those who wait or listen go before it waits for them."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self.settled = threading.Event()  # it serves, or has failed
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(on_trouble)
        await super().startup(sockets=sockets)
        self.settled.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.changes.close()
        self._app.state.events.close()
        await super().shutdown(sockets=sockets)


class Server:
    """A running server. `url` is where it is reached from this machine."""

    def __init__(
        self, app: Starlette, listener: socket.socket, *, most_connections: int | None = None
    ) -> None:
        """Serve on a socket that listens already. `most_connections`: at once; None: as many as is safe.

        Raises:
            Unavailable: The application did not start.
        """
        host, self.port = listener.getsockname()[:2]
        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"http://{name}:{self.port}"
        config = uvicorn.Config(
            app,
            log_config=None,  # its words go where the scheduler's go
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=2,
            http=Bounded,
            ws="none",
            proxy_headers=False,  # a client's address is its connection's, whatever its headers say
            server_header=False,
            limit_concurrency=connections() if most_connections is None else most_connections,
        )
        self._server = _Uvicorn(config, app)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        self._server.settled.wait()
        if not self._server.started:
            self.stop()
            raise Unavailable("the REST interface did not start", remedy="see the scheduler's log")

    def _run(self) -> None:
        try:
            # Not Server.run: that would take the process' signals.
            asyncio.run(self._server.serve(sockets=[self._listener]))
        finally:
            self._server.settled.set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    def stop(self) -> None:
        """Finish what is being answered, and end the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def serve(app: Starlette, host: str, port: int) -> Server:
    """Serve what `create_app` made, on what `listen` gives.

    Raises:
        Conflict, Unavailable: As of `listen` and `Server`.
    """
    return Server(app, listen(host, port))


def listen(host: str, port: int) -> socket.socket:
    """A socket for `Server`; port 0 takes a free one.

    Raises:
        Conflict: The address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it answers take 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror}",
            remedy="choose another one with --port, or end what uses it",
        ) from error
    return listener
