"""A connection to a channel, by the way in which the scheduler is reached."""

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

PING_S: Final = 20.0  # between two signs of life, and until one is missed


def open_line(reach: Reach, channel: "Channel") -> ClientConnection:
    """Connect, with the proof of the channel.

    Raises:
        Unreachable: Nobody answers there.
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
        what = f"the scheduler at {reach.url} opens no channel: {error}"
        raise Unreachable(what, remedy=f"a proxy before it must let WebSockets through; {REMEDY}") from error


def _shared(line: socket.socket) -> socket.socket:
    """Return a connection for the thread that reads and those that write, which take turns in writing."""
    return cast(socket.socket, SharedTls(line)) if isinstance(line, ssl.SSLSocket) else line
