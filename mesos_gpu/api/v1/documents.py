"""Documents that are read and changed as a whole, and kept as versions: what their routes have in common."""

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
    """A kind of document.

    Attributes:
        route: Where it is read and changed.
        listing: The command that lists its versions.
        kept: Its versions in a state, oldest first.
        none: What holds while there is none.
        decode: From JSON, or all that is wrong.
        encode: To JSON.
        counts: How many of what a version has, for their list.
    """

    route: str
    listing: str
    kept: Callable[[View], Mapping[int, D]]
    none: D
    decode: Callable[[Mapping[str, Any]], D | list[Problem]]
    encode: Callable[[D], dict[str, Any]]
    counts: Callable[[D], dict[str, int]]


class Documents(Generic[D]):
    """Handlers that read a document, its versions and what is asked to be the next one."""

    def __init__(self, scheduler: SchedulerApi, kind: Versioned[D]) -> None:
        """Serve a scheduler."""
        self._scheduler, self._kind = scheduler, kind

    async def latest(self) -> D:
        """The version that holds."""
        kept = await result_of(self._scheduler.read(lambda view: [*self._kind.kept(view).values()][-1:]))
        return kept[0] if kept else self._kind.none

    async def versions(self, _request: Request) -> Response:
        """GET …/versions: the newest first."""
        kept = await result_of(self._scheduler.read(lambda view: list(self._kind.kept(view).values())))
        listed = [
            {
                "version": each.version,
                "at": each.at,
                "by": each.by,
                "comment": each.comment,
                **self._kind.counts(each),
            }
            for each in reversed(kept)
        ]
        return json_answer({"versions": listed})

    async def version(self, request: Request) -> Response:
        """GET …/versions/{version}; version 0 is the document before the first one."""
        text = str(request.path_params["version"])
        none = {0: self._kind.none}
        kept = await result_of(self._scheduler.read(lambda view: none | dict(self._kind.kept(view))))
        wanted = kept.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 17 else None
        if wanted is None:
            raise NotFound(f"there is no version {text}", remedy=f"list them with: {self._kind.listing}")
        return self.shown(wanted)

    def shown(self, each: D, more: Mapping[str, Any] | None = None) -> Response:
        """A version as an answer, and `more` in it."""
        return json_answer({**self._kind.encode(each), **(more or {})}, headers=tag_of(each))

    async def asked(self, request: Request) -> tuple[D, int]:
        """What the body asks for, and the version that was read by who asks.

        Raises:
            Refusal: It is no such document, or does not say which version was read; all of it at once.
        """
        value = await read_of(request, object_of)
        expected = expected_version(request, value, self._kind.route)
        wanted = self._kind.decode({**value, "version": expected or 0})
        problems = wanted if isinstance(wanted, list) else []
        if expected is None:
            problems = [not_read(value), *problems]
        if isinstance(wanted, list) or expected is None:
            raise invalid(*problems)
        return wanted, expected


def not_read(value: Mapping[str, Any]) -> Problem:
    """What is wrong with a body that does not say the version that was read."""
    given = value.get("version")
    wrong = "" if given is None else f"must be an integer from 0, got {show(given)}: "
    how = "say which version you have read: 0 where there is none yet (or in If-Match, as an ETag has it)"
    return Problem("/version", wrong + how)


def tag_of(each: AccessDocument | QueueDocument) -> dict[str, str]:
    """The header that says which version it is."""
    return {"ETag": f'"{each.version}"'}


def expected_version(request: Request, value: Mapping[str, Any], route: str) -> int | None:
    """The version that was read, by the body or by If-Match; None: nothing says it.

    Raises:
        Refusal: They say it in another form, or differ.
    """
    header, given = request.headers.get("if-match"), value.get("version")
    if header is None:
        return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None
    digits = header.strip().removeprefix('"').removesuffix('"')
    if header.strip() != f'"{digits}"' or not digits.isascii() or not digits.isdigit() or len(digits) > 16:
        raise invalid(Problem("/If-Match", f'must be one ETag of GET {route}, as "3"'))
    if given is not None and given != int(digits):
        raise invalid(Problem("/version", f"is another than that of If-Match, {digits}"))
    return int(digits)
