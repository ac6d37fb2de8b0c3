"""How a channel is opened: by one request, made with next to nothing, as a prompt waits for it.

The client of all other commands brings libraries and types that take longer to load than a command in a task to begin.
What is not opened at once is asked for again by it: it knows how to say why, and what mends it.
"""

import http.client
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli.app import App
from mesos_gpu.cli.channel.connected import connected, netloc
from mesos_gpu.cli.reach.reach import Reach

if TYPE_CHECKING:
    from mesos_gpu.api.spec.tasks.channel import Channel

_MOST: Final = 1 << 16  # bytes of an answer
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def open_channel(app: App, path: str, order: Mapping[str, object]) -> "Channel":
    """Ask for a channel by the route of `path`.

    Raises:
        MesosGpuError: What `Client.call` raises.
    """
    reach = app.reach()
    channel = None if _is_behind_proxy(reach) else _opened(reach, path, order)
    if channel is not None:
        return channel
    from mesos_gpu.api.spec.tasks.channel import Channel

    return app.client().call("POST", path, Channel, body=order)


def _is_behind_proxy(reach: Reach) -> bool:
    names = {name.lower() for name in os.environ if os.environ[name]}
    return not reach.is_here and not names.isdisjoint(_PROXIES)


def _opened(reach: Reach, path: str, order: Mapping[str, object]) -> "Channel | None":
    """The channel; None: there was no such answer."""
    token = reach.renew() if reach.renew else reach.token
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        line = http.client.HTTPConnection(netloc(reach))
        line.sock = connected(reach)
    except OSError:
        return None
    try:
        line.request("POST", path, json.dumps(order), headers)
        answer = line.getresponse()
        said = json.loads(answer.read(_MOST)) if answer.status == http.client.CREATED else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        line.close()
    names = ("path", "proof", "task_id")
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in names):
        return None
    return {"path": said["path"], "proof": said["proof"], "task_id": said["task_id"]}
