"""The HTTP server, on a thread of its own."""

import asyncio
import socket
import threading
from typing import Any

import uvicorn

from mesos_gpu.errors import Conflict


class Server:
    """A running server. `url` is where it is reached from this machine."""

    def __init__(self, app: Any, listener: socket.socket) -> None:
        """Begin to serve on a socket that listens already."""
        host, self.port = listener.getsockname()[:2]
        self.url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{self.port}"
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Not Server.run: that would take the process' signals.
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def stop(self) -> None:
        """Finish what is being answered, and end the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def serve(app: Any, host: str, port: int) -> Server:
    """Serve `app`; port 0 takes a free one.

    Raises:
        Conflict: The address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
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
    return Server(app, listener)
