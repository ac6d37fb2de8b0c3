"""What a task asks to have in its sandbox, fetched by the agent's own fetcher, as the task's user.

The executor is root, and with URIs in its own command the fetcher would be, too: any file of the host could be read by
a file: URI, and archives of strangers would be unpacked with root's rights. So the URIs go to a container that is
nested in the executor's, whose user is the task's (CommandInfo.user, which the fetcher becomes: docs/fetcher.md).
Its command does nothing; what is in its sandbox then is moved into the task's.
"""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from isolator.agent_api import Connection
from isolator.runs import NotStarted, container_of, give, identity, sandbox_of
from isolator.sandbox import CONTAINERS, STREAMS, Sandbox
from mesos_gpu.model.assignment import Assignment, Outcome

CONTAINER: Final = "fetch"
CALL_S: Final = 30.0
RETRY_S: Final = 0.2
_FAILED: Final = "Failed to fetch '"  # by the fetcher (launcher/fetcher.cpp), in its stderr
_MOST: Final = 65536


class Fetch:
    """One task's."""

    def __init__(self, plan: Assignment, connection: Connection, own: Mapping[str, str]) -> None:
        """Nothing is fetched yet. `own`: the executor's environment."""
        self._plan, self._connection, self._own = plan, connection, own
        self._id = {"value": CONTAINER, "parent": {"value": container_of(own)}}
        self._aborted, self._done = threading.Event(), threading.Event()

    def run(self) -> None:
        """Until all is in the sandbox.

        Raises:
            NotStarted: It cannot be, and why.
            OSError: The agent does not answer, or the sandbox is full.
        """
        command: dict[str, Any] = {"shell": True, "value": "exit 0", **uris_of(self._plan)}
        sandbox, user = sandbox_of(self._own), identity(self._plan.user, self._own)
        if user is not None and user.pw_uid != os.geteuid():
            command["user"] = user.pw_name
            give(sandbox, user, writes=False)  # else the fetcher, which is that user, may not pass it
        with Sandbox(sandbox) as place:
            place.keep(CONTAINERS)
        ask = {"container_id": self._id, "command": command}
        if self._aborted.is_set():
            raise NotStarted("killed before it was started")
        try:
            status, answer = self._connection.call(
                {"type": "LAUNCH_CONTAINER", "launch_container": ask}, None
            )
        finally:
            self._done.set()
        if status != 200:
            why = failure_in(sandbox, CONTAINER)
            text = answer.decode(errors="replace").strip()
            raise NotStarted(
                why or f"the agent did not fetch {_named(self._plan)}: {text}",
                Outcome(infrastructure=not why),
            )
        _move(sandbox)

    def abort(self) -> None:
        """Let `run` come to an end soon. From any thread."""
        self._aborted.set()
        ask = {"container_id": self._id, "signal": 9}
        while not self._done.is_set():  # the agent may not have it yet
            with contextlib.suppress(OSError):
                self._connection.call({"type": "KILL_CONTAINER", "kill_container": ask}, CALL_S)
            self._done.wait(RETRY_S)


def uris_of(plan: Assignment) -> Mapping[str, Sequence[object]]:
    """The part of a CommandInfo."""
    return {"uris": list(plan.fetch)} if plan.fetch else {}


def failure_in(sandbox: str, container: str) -> str:
    """What the fetcher says that it could not fetch for a nested container; "": nothing. `sandbox`: the task's."""
    try:
        with Sandbox(sandbox) as place, place.enter(CONTAINERS, container) as nested:
            text = nested.read("stderr", _MOST).decode(errors="replace")
    except OSError:
        return ""
    found = text.rpartition(_FAILED)[2] if _FAILED in text else ""
    uri, _, why = found.partition("\n")[0].partition("': ")
    return f"could not fetch {uri}: {why}" if why else ""


def _named(plan: Assignment) -> str:
    return ", ".join(str(uri.get("value")) for uri in plan.fetch)


def _move(sandbox: str) -> None:
    with Sandbox(sandbox) as place, place.enter(CONTAINERS, CONTAINER) as nested:
        if taken := place.take(nested, but=STREAMS):
            raise NotStarted(f"{taken} was fetched, and the sandbox has a file of that name already")
