"""Facts about the current request for the audit log, its answer, and log lines; collected as they become known."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.access.tokens import redacted
from mesos_gpu.wire.plain import clean

REQUEST_ID: Final = "X-Request-Id"
_SANE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}", re.ASCII)
_ABOUT: Final = {"why": "job", "access": "access", "services": "service"}


@dataclass(slots=True)
class Note:
    """Facts about a request. `right` and `reason` are names and codes of the REST interface."""

    request: str = ""  # its id
    route: str = ""  # with {id} in place of ids; "" if no route was reached
    right: str = ""
    reason: str = ""
    # names of the resources concerned, such as job:train-1a2b3c4d
    on: list[str] = field(default_factory=list)
    claimed: str = ""  # name that a wrong proof was for
    claimed_by: str = ""  # kind of that proof
    is_piece: bool = False  # part of an upload, which is recorded when it is complete


_current: Final[ContextVar[Note | None]] = ContextVar("note", default=None)


def begin(request: str) -> Note:
    """Begin the note of a request, for this task and those that it starts."""
    note = Note(request)
    _current.set(note)
    return note


def current() -> Note:
    """Return the note of the current request; outside of one, a note that is discarded."""
    return _current.get() or Note()


@contextmanager
def within(request: str) -> Iterator[None]:
    """Set the current request in another thread, so that log lines there carry its id."""
    token = _current.set(Note(request))
    try:
        yield
    finally:
        _current.reset(token)


def request_id() -> str:
    """Return the id of the current request; "" outside of a request."""
    return current().request


def id_for(wanted: str) -> str:
    """Return the id that a client gave its request if it is a plain word, else a new one."""
    is_sane = _SANE.fullmatch(wanted) and redacted(wanted) == wanted
    return wanted if is_sane else uuid.uuid4().hex


def shown(text: str) -> str:
    """Return a text of a request without control characters and without what looks like a token."""
    return clean(redacted(text))


def about(kind: str, name: str) -> None:
    """Add a resource that the request concerns, once it is known: a job by its full id, a GPU by its UUID."""
    on, subject = current().on, f"{kind}:{shown(name)}"
    if subject not in on:
        on.append(subject)


def at(route: str, right: str = "") -> None:
    """Store the route of the request and the right that it needs."""
    note = current()
    note.route, note.right = route, right


def claimed(name: str, proof: str) -> None:
    """Store the name that a wrong proof was for, and the kind of the proof; never the proof itself."""
    note = current()
    note.claimed, note.claimed_by = shown(name), proof


def of_path(path: str) -> tuple[str, str]:
    """Guess the route and the resource ("" for none) from a path of /v1, for requests that reached no route."""
    steps = path.split("/")
    if len(steps) < 4 or steps[1] != "v1" or steps[2] == "plan":
        return shown(path)[:80], ""
    if steps[2] == "queues" and steps[3]:
        return "/v1/queues/{queue:path}", f"queue:{shown('/'.join(steps[3:]))}"
    first = 4 if steps[2:4] == ["tasks", "unknown"] else 3
    if len(steps) <= first or not steps[first]:
        return shown(path)[:80], ""
    kind = _ABOUT.get(steps[2], steps[2].removesuffix("s"))
    route = "/".join([*steps[:first], "{id}", *steps[first + 1 :]])
    return shown(route)[:80], f"{kind}:{shown(steps[first])}"
