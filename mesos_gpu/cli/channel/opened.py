"""How a channel is opened: by one request, made with next to nothing, as a prompt waits for it.

The client of all other commands brings libraries and types that take longer to load than a command in a task to begin.
It says what a refusal means, which is not asked for again: each is on record, and wrong proofs are counted. Nor is what
was sent and not answered: it may have opened a channel. Where nothing could be sent, or the answer says when to come
back, that client asks.
"""

import http.client
import io
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from mesos_gpu.cli.app import App
from mesos_gpu.cli.channel.connected import connected, netloc, path_at
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.api.spec.tasks.channel import Channel

_MAX: Final = 1 << 16  # bytes of an answer
_ANSWER_S: Final = 30.0  # for it
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


class _Answer(NamedTuple):
    """An answer to the request. `showed`: whether that had a token."""

    status: int
    reason: str
    body: bytes
    showed: bool


def open_channel(app: App, path: str, order: Mapping[str, object]) -> "Channel":
    """Ask for a channel by the route of `path`.

    Raises:
        MesosGpuError: What `Client.call` raises.
    """
    reach = app.reach()
    answer = None if _is_behind_proxy(reach) else _asked(reach, path, order)
    if isinstance(answer, _Answer) and (channel := _channel_of(answer)) is not None:
        return channel
    if isinstance(answer, Exception):
        from mesos_gpu.cli.reach.why import unanswered

        again = "" if reach.is_tls else "try again: nothing has begun in the task"
        raise unanswered(reach, answer, again) from answer
    if answer is None or answer.status == http.client.TOO_MANY_REQUESTS:
        from mesos_gpu.api.spec.tasks.channel import Channel

        return app.client().call("POST", path, Channel, body=order)
    raise _failure(reach.url, path, answer)


def _is_behind_proxy(reach: Reach) -> bool:
    names = {name.lower() for name in os.environ if os.environ[name]}
    return not reach.is_here and not names.isdisjoint(_PROXIES)


def _asked(reach: Reach, path: str, order: Mapping[str, object]) -> _Answer | Exception | None:
    """What is answered; an error: nothing is, to what was sent; None: nobody is there."""
    token = reach.renew() if reach.renew else reach.token
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        line = http.client.HTTPConnection(netloc(reach))
        line.sock = connected(reach)
        line.sock.settimeout(_ANSWER_S)
    except OSError:
        return None
    try:
        line.request("POST", path_at(reach, path), json.dumps(order), headers)
        answer = line.getresponse()
        return _Answer(answer.status, answer.reason, answer.read(_MAX), bool(token))
    except (OSError, http.client.HTTPException) as error:
        return error
    finally:
        line.close()


def _channel_of(answer: _Answer) -> "Channel | None":
    """The channel that it opens; None: it opens none."""
    try:
        said = json.loads(answer.body) if answer.status == http.client.CREATED else None
    except ValueError:
        return None
    names = ("path", "proof", "task_id")
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in names):
        return None
    return {"path": said["path"], "proof": said["proof"], "task_id": said["task_id"]}


def _failure(url: str, path: str, answer: _Answer) -> MesosGpuError:
    """What the client says of an answer that it did not ask for itself."""
    import requests

    from mesos_gpu.cli.reach.said import error_of

    seen = requests.Response()
    seen.status_code, seen.reason, seen.url = answer.status, answer.reason, f"{url}{path}"
    seen.raw = io.BytesIO(answer.body)
    seen.request = requests.PreparedRequest()
    seen.request.prepare_headers({"Authorization": "shown"} if answer.showed else {})
    return error_of(seen, url)
