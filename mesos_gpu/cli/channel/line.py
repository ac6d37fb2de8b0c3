"""WebSocket connection of a channel, by the transport to the scheduler."""

import socket
import ssl
from typing import TYPE_CHECKING, Final, cast

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from mesos_gpu.adapters.tls.shared import SharedTls
from mesos_gpu.cli.channel.connected import CONNECT_S, connected, netloc, path_at
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach.failures import Unreachable
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.wire.channel.frames import MAX_FRAME

if TYPE_CHECKING:
    from mesos_gpu.api.spec.tasks.channel import Channel

PING_S: Final = 20.0  # interval of pings, and timeout of the answer


def open_line(reach: Reach, channel: "Channel") -> ClientConnection:
    """Connect to a channel, with its proof.

    Raises:
        Unreachable: The scheduler does not answer.
    """
    try:
        return connect(
            f"ws://{netloc(reach)}{path_at(reach, channel['path'])}",
            sock=_shared(connected(reach)),
            additional_headers={"Authorization": f"Bearer {channel['proof']}"},
            compression=None,
            proxy=None,
            open_timeout=CONNECT_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            max_size=MAX_FRAME,
            max_queue=64,
        )
    except (OSError, WebSocketException) as error:
        what = f"the scheduler at {reach.url} could not open a channel: {error}"
        raise Unreachable(what, remedy=f"a proxy in front of it must allow WebSockets; {REMEDY}") from error


def _shared(line: socket.socket) -> socket.socket:
    """Return a connection that one thread reads and others write; TLS needs a lock for that."""
    return cast(socket.socket, SharedTls(line)) if isinstance(line, ssl.SSLSocket) else line
