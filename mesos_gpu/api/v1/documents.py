"""Base of routes for documents that are read and changed as a whole, and stored as versions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import read_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.wire.checking import Problem, object_of, show

D = TypeVar("D", bound=AccessDocument | QueueDocument)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[D]):
    """Definition of a kind of document.

    Attributes:
        route: Path at which it is read and changed.
        listing: Command that lists its versions.
        kept: Returns its stored versions in a state, oldest first.
        none: Document that is valid before the first version.
        decode: Decodes JSON; returns all faults if there are any.
        encode: Encodes to JSON.
        counts: Returns numbers about a version, for the list of versions.
    """

    route: str
    listing: str
    kept: Callable[[View], Mapping[int, D]]
    none: D
    decode: Callable[[Mapping[str, Any]], D | list[Problem]]
    encode: Callable[[D], dict[str, Any]]
    counts: Callable[[D], dict[str, int]]


class Documents(Generic[D]):
    """Handlers that read a document and its versions, and decode requests for a new version.

    Args:
        kind: Kind of the document.
    """

    def __init__(self, scheduler: SchedulerApi, kind: Versioned[D]) -> None:
        self._scheduler, self._kind = scheduler, kind

    async def latest(self) -> D:
        """Return the latest version."""
        latest = await result_of(self._scheduler.read(lambda view: [*self._kind.kept(view).values()][-1:]))
        return latest[0] if latest else self._kind.none

    async def versions(self, _request: Request) -> Response:
        """GET …/versions: summaries of the versions, the newest first."""
        versions = await result_of(self._scheduler.read(lambda view: list(self._kind.kept(view).values())))
        listed = [
            {
                "version": version.version,
                "at": version.at,
                "by": version.by,
                "comment": version.comment,
                **self._kind.counts(version),
            }
            for version in reversed(versions)
        ]
        return json_answer({"versions": listed})

    async def version(self, request: Request) -> Response:
        """GET …/versions/{version}: a version; version 0 is the document before the first one."""
        text = str(request.path_params["version"])
        none = {0: self._kind.none}
        versions = await result_of(self._scheduler.read(lambda view: none | dict(self._kind.kept(view))))
        document = versions.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 17 else None
        if document is None:
            raise NotFound(f"there is no version {text}", remedy=f"list them with: {self._kind.listing}")
        return self.shown(document)

    def shown(self, each: D, more: Mapping[str, Any] | None = None) -> Response:
        """Return a version as an answer, with further fields `more`."""
        return json_answer({**self._kind.encode(each), **(more or {})}, headers=tag_of(each))

    async def asked(self, request: Request) -> tuple[D, int]:
        """Return the document in a request's body, and the version that its caller has read.

        Raises:
            Refusal: The body is not such a document, or does not state the version that was read; lists all faults.
        """
        value = await read_of(request, object_of)
        expected = expected_version(request, value, self._kind.route)
        document = self._kind.decode({**value, "version": expected or 0})
        problems = document if isinstance(document, list) else []
        if expected is None:
            problems = [not_read(value), *problems]
        if isinstance(document, list) or expected is None:
            raise invalid(*problems)
        return document, expected


def not_read(value: Mapping[str, Any]) -> Problem:
    """Return the fault of a body that does not state the version that was read."""
    given = value.get("version")
    wrong = "" if given is None else f"must be an integer from 0, got {show(given)}: "
    how = "state the version that you have read: 0 before the first one (or as an ETag in If-Match)"
    return Problem("/version", wrong + how)


def tag_of(each: AccessDocument | QueueDocument) -> dict[str, str]:
    """Return the header with the version of a document."""
    return {"ETag": f'"{each.version}"'}


def expected_version(request: Request, value: Mapping[str, Any], route: str) -> int | None:
    """Return the version that was read, from the body or If-Match; None if neither has it.

    Raises:
        Refusal: It has a wrong form, or both differ.
    """
    header, given = request.headers.get("if-match"), value.get("version")
    if header is None:
        return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None
    digits = header.strip().removeprefix('"').removesuffix('"')
    if header.strip() != f'"{digits}"' or not digits.isascii() or not digits.isdigit() or len(digits) > 16:
        raise invalid(Problem("/If-Match", f'must be one ETag of GET {route}, as "3"'))
    if given is not None and given != int(digits):
        raise invalid(Problem("/version", f"differs from that of If-Match, {digits}"))
    return int(digits)
