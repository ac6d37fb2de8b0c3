"""Opening of a channel by a single lightweight request, because a user waits for the prompt.

The full client imports libraries that take longer to load than a command in a task to begin. It is used only for
refusals' texts; a refused request is not repeated, because each refusal is recorded and wrong credentials are
counted. A request that was sent without an answer is not repeated either, as it may have opened a channel. If nothing
could be sent, or the answer asks to retry later, the full client sends the request.
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

_MAX: Final = 1 << 16  # maximum bytes of an answer
_ANSWER_S: Final = 30.0  # timeout of an answer
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


class _Answer(NamedTuple):
    """Answer to the request; `showed` is whether the request had a token."""

    status: int
    reason: str
    body: bytes
    showed: bool


def open_channel(app: App, path: str, order: Mapping[str, object]) -> "Channel":
    """Request a channel from the route `path`.

    Raises:
        MesosGpuError: Raised by `Client.call`.
    """
    reach = app.reach()
    answer = None if _is_behind_proxy(reach) else _asked(reach, path, order)
    if isinstance(answer, _Answer) and (channel := _channel_of(answer)) is not None:
        return channel
    if isinstance(answer, Exception):
        from mesos_gpu.cli.reach.why import unanswered

        again = "" if reach.is_tls else "try again: nothing was started in the task"
        raise unanswered(reach, answer, again) from answer
    if answer is None or answer.status == http.client.TOO_MANY_REQUESTS:
        from mesos_gpu.api.spec.tasks.channel import Channel

        return app.client().call("POST", path, Channel, body=order)
    raise _failure(reach.url, path, answer)


def _is_behind_proxy(reach: Reach) -> bool:
    names = {name.lower() for name in os.environ if os.environ[name]}
    return not reach.is_here and not names.isdisjoint(_PROXIES)


def _asked(reach: Reach, path: str, order: Mapping[str, object]) -> _Answer | Exception | None:
    """Return the answer; the error if a request was sent without an answer; None if connecting failed."""
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
    """Return the channel that was opened; None if the answer is no such channel."""
    try:
        body = json.loads(answer.body) if answer.status == http.client.CREATED else None
    except ValueError:
        return None
    names = ("path", "proof", "task_id")
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in names):
        return None
    return {"path": body["path"], "proof": body["proof"], "task_id": body["task_id"]}


def _failure(url: str, path: str, answer: _Answer) -> MesosGpuError:
    """Return the error that the full client would raise for this answer."""
    import requests

    from mesos_gpu.cli.reach.said import error_of

    seen = requests.Response()
    seen.status_code, seen.reason, seen.url = answer.status, answer.reason, f"{url}{path}"
    seen.raw = io.BytesIO(answer.body)
    seen.request = requests.PreparedRequest()
    seen.request.prepare_headers({"Authorization": "shown"} if answer.showed else {})
    return error_of(seen, url)
