"""A connection to a channel, by the way in which the scheduler is reached."""

import socket
from typing import Final
from urllib.parse import urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.api.spec.tasks.channel import Channel
from mesos_gpu.cli.client import Unreachable
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach import unix_http
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.wire.channel.frames import MOST_FRAME

CONNECT_S: Final = 10.0
PING_S: Final = 20.0  # between two signs of life, and until one is missed


def open_line(reach: Reach, channel: Channel) -> ClientConnection:
    """Connect, with the proof of the channel.

    Raises:
        Unreachable: Nobody answers there.
    """
    try:
        return connect(
            f"ws://{_netloc(reach)}{channel['path']}",
            sock=_connected(reach),
            additional_headers={"Authorization": f"Bearer {channel['proof']}"},
            compression=None,
            proxy=None,
            open_timeout=CONNECT_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            max_size=MOST_FRAME,
            max_queue=64,
        )
    except (OSError, WebSocketException) as error:
        what = f"the scheduler at {reach.url} opens no channel: {error}"
        raise Unreachable(what, remedy=f"a proxy before it must let WebSockets through; {REMEDY}") from error


def _netloc(reach: Reach) -> str:
    return "localhost" if reach.socket else urlsplit(reach.url).netloc


def _connected(reach: Reach) -> socket.socket:
    if reach.socket:
        return unix_http.connect(reach.socket, CONNECT_S)
    port = urlsplit(reach.url).port or (443 if reach.is_tls else 80)
    plain = socket.create_connection((reach.host, port), CONNECT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not reach.is_tls:
        return plain
    try:
        context = client_context(Trust(reach.cacert, reach.cert, reach.key))
        return context.wrap_socket(plain, server_hostname=reach.host)
    except BaseException:
        plain.close()
        raise
