"""What a request is about, as those who serve it come to know: for the audit log, its answer and the log's lines."""

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
    """A request. `right` and `reason` are the interface's words."""

    request: str = ""  # its id
    route: str = ""  # with {id} in place of ids; "": none was reached
    right: str = ""
    reason: str = ""
    on: list[str] = field(default_factory=list)
    claimed: str = ""  # the name that a wrong proof was for
    claimed_by: str = ""  # the kind of that proof
    is_piece: bool = False  # of something that is on record when it is whole


_current: Final[ContextVar[Note | None]] = ContextVar("note", default=None)


def begin(request: str) -> Note:
    """Take note of a request from here on, in this task and what it starts."""
    note = Note(request)
    _current.set(note)
    return note


def current() -> Note:
    """The note of the request in hand; outside of one, a note that nobody reads."""
    return _current.get() or Note()


@contextmanager
def within(request: str) -> Iterator[None]:
    """Do something for a request on another thread: what is logged there says so."""
    token = _current.set(Note(request))
    try:
        yield
    finally:
        _current.reset(token)


def request_id() -> str:
    """The id of the request in hand; "": there is none."""
    return current().request


def id_for(wanted: str) -> str:
    """The id that a client gave its request, if it is a plain word; else a new one."""
    is_sane = _SANE.fullmatch(wanted) and redacted(wanted) == wanted
    return wanted if is_sane else uuid.uuid4().hex


def shown(text: str) -> str:
    """A text of a request as it may be kept: without control characters, and without what looks like a token."""
    return clean(redacted(text))


def about(kind: str, name: str) -> None:
    """Tell what a request is about, once it is known: a job by its whole id, a GPU by its UUID."""
    on, subject = current().on, f"{kind}:{shown(name)}"
    if subject not in on:
        on.append(subject)


def at(route: str, right: str = "") -> None:
    """Tell which route serves the request, and the right that this takes."""
    note = current()
    note.route, note.right = route, right


def claimed(name: str, proof: str) -> None:
    """Tell whose name a proof was for that is wrong. Never the proof itself."""
    note = current()
    note.claimed, note.claimed_by = shown(name), proof


def of_path(path: str) -> tuple[str, str]:
    """A route as it would be for a path of /v1, and what it is about, "" for nothing: where no route was reached."""
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
