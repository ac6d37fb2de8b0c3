"""Routes of the tree of queues: reading it, and changing the whole tree or a single queue."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import SECRET_USE
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer, valid
from mesos_gpu.api.http.requests import Flag, Number, read_of, result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.queues import seen_queues
from mesos_gpu.api.v1.documents import Documents, Versioned, expected_version, not_read, tag_of
from mesos_gpu.api.v1.queues import plans
from mesos_gpu.engine.events import QueuesChanged
from mesos_gpu.engine.reading.queues import check_queues, hours_of, plan_queues
from mesos_gpu.engine.tenancy.document import READ_AGAIN
from mesos_gpu.engine.versions import stale
from mesos_gpu.errors import NotFound
from mesos_gpu.model.tenancy import NO_QUEUES, QueueDocument
from mesos_gpu.policy.times.hours import changed
from mesos_gpu.wire.checking import Problem, object_of
from mesos_gpu.wire.tenancy import document

QUEUES: Final = Versioned(
    "/v1/queues",
    "mesos-gpu queue versions",
    lambda view: view.queue_versions,
    NO_QUEUES,
    document.decode,
    document.encode,
    lambda each: {"queues": len(each.queues)},
)
RECLAIM_AFTER_S: Final = Number("reclaim_after_s", -1, 0, 1e9, whole=False)
READ: Final = Number("version", -1, 0, document.MAX_VERSION)
DRY_RUN: Final = Flag("dry_run")


class QueueDocuments(Documents[QueueDocument]):
    """HTTP handlers of the document of queues and of single queues."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        super().__init__(scheduler, QUEUES)

    async def show(self, request: Request) -> Response:
        """GET /v1/queues: the latest version of the tree."""
        visible = seen_queues(rights_of(request), await self.latest())
        return self.shown(visible, await self._in_force(visible))

    async def put(self, request: Request) -> Response:
        """PUT /v1/queues: replace the tree, if its latest version was read."""
        new_document, expected = await self.asked(request)
        latest = await self.latest()
        now, more = await self._change(request, latest, new_document, expected)
        return self.shown(now, {**more, **await self._in_force(now)})

    async def show_one(self, request: Request) -> Response:
        """GET /v1/queues/{queue}: a queue."""
        path = str(request.path_params["queue"])
        return _one(seen_queues(rights_of(request), await self.latest()), path)

    async def put_one(self, request: Request) -> Response:
        """PUT /v1/queues/{queue}: create or replace a queue."""
        return await self._set(request, is_patch=False)

    async def patch_one(self, request: Request) -> Response:
        """PATCH /v1/queues/{queue}: change fields of a queue."""
        return await self._set(request, is_patch=True)

    async def delete_one(self, request: Request) -> Response:
        """DELETE /v1/queues/{queue}: delete a queue that has no jobs and no queues below it."""
        path, read = str(request.path_params["queue"]), int(READ.of(request))
        expected = expected_version(request, {"version": read} if read >= 0 else {}, QUEUES.route)
        latest = await self.latest()
        _require_queue(latest, path)
        note.about("queue", path)
        if expected is None:
            raise invalid(not_read({}))
        new_document = replace(valid(document.without_queue(latest, path)), comment="")
        now, more = await self._change(request, latest, new_document, expected)
        return json_answer({**_queue_of(latest, path), "version": now.version, **more}, headers=tag_of(now))

    async def plan(self, request: Request) -> Response:
        """POST /v1/plan/queues: what a document would change, whatever version it is based on."""
        new_document = valid(document.decode(await read_of(request, object_of)))
        warnings = await self._warnings(new_document)
        return json_answer({**await self._planned(new_document), "warnings": warnings})

    async def _set(self, request: Request, *, is_patch: bool) -> Response:
        """Replace or change a queue, and answer with it."""
        path, value = str(request.path_params["queue"]), await read_of(request, object_of)
        note.about("queue", path)
        expected = expected_version(request, value, f"{QUEUES.route}/{path}")
        latest = await self.latest()
        if is_patch:
            _require_queue(latest, path)
        fields = {key: item for key, item in value.items() if key not in _READ_WITH}
        comment_document = document.decode({"comment": value.get("comment")})
        new_document = document.with_queue(latest, path, fields, is_patch=is_patch)
        problems = [
            *(comment_document if isinstance(comment_document, list) else []),
            *(_at_queue(path, new_document) if isinstance(new_document, list) else []),
        ]
        if expected is None:
            problems = [not_read(value), *problems]
        if isinstance(new_document, list) or isinstance(comment_document, list) or expected is None:
            raise invalid(*problems)
        now, more = await self._change(
            request, latest, replace(new_document, comment=comment_document.comment), expected
        )
        return _one(now, path, more)

    async def _change(
        self, request: Request, latest: QueueDocument, wanted: QueueDocument, expected: int
    ) -> tuple[QueueDocument, dict[str, Any]]:
        """Change the document unless the request is a dry run; return the new document, and more fields of the answer.

        Raises:
            Refusal: It does not fit the nodes (422).
            Conflict: Another version is the latest, or jobs would be in a queue that is no leaf.
        """
        after_s, dry = RECLAIM_AFTER_S.of(request), DRY_RUN.of(request)
        _require_secrets(rights_of(request), latest, wanted)
        if expected != latest.version:
            raise stale(latest.version, expected, READ_AGAIN)
        more: dict[str, Any] = {"warnings": await self._warnings(wanted)}
        if dry:
            return wanted, {**more, "plan": await self._planned(wanted)}
        wanted = replace(wanted, by=rights_of(request).caller.name)
        future = self._scheduler.request(QueuesChanged(wanted, expected, after_s if after_s >= 0 else None))
        now = await result_of(future)
        note.about("queues", str(now.version))
        return now, more

    async def _warnings(self, wanted: QueueDocument) -> list[str]:
        """Return warnings about possible mistakes in a document.

        Raises:
            Refusal: It does not fit the nodes (422).
            Conflict: Jobs would be in a queue that is no leaf.
        """
        findings = await result_of(self._scheduler.read_copy(lambda view: check_queues(view, wanted)))
        if findings.faults:
            raise invalid(*(Problem(*fault) for fault in findings.faults))
        return list(findings.warnings)

    async def _in_force(self, seen: QueueDocument) -> dict[str, Any]:
        """Return the figures of queues with hours that are in force now and next."""
        paths = [path for path, spec in seen.queues.items() if spec.hours]
        if not paths:
            return {"in_force": None}
        span, following = await result_of(self._scheduler.read(lambda view: hours_of(view, seen)))
        later = {} if following is None else changed(span.document, following.document)
        return {
            "in_force": {
                "since": span.since if isfinite(span.since) else None,
                "until": span.until if isfinite(span.until) else None,
                "queues": document.encode_figures(span.document, paths),
                "next": {} if following is None else document.encode_figures(following.document, later),
            }
        }

    async def _planned(self, wanted: QueueDocument) -> dict[str, Any]:
        return plans.shown(await result_of(self._scheduler.read_copy(lambda view: plan_queues(view, wanted))))


def _require_secrets(rights: Rights, latest: QueueDocument, wanted: QueueDocument) -> None:
    """Check that the caller may use the secrets of queues, which users of these queues use without that right.

    Raises:
        Refusal: The right is missing for one of them.
    """
    for path, spec in wanted.queues.items():
        before = latest.queues.get(path)
        if spec.image_secret is not None and (before is None or before.image_secret != spec.image_secret):
            name = spec.image_secret.partition("#")[0]
            require(rights, SECRET_USE, Subject(rights.caller.name, path, name=name))


#: Fields that are read beside a queue's own fields, and ignored.
_READ_WITH: Final = ("version", "path", "comment", "plan", "warnings")


def _one(latest: QueueDocument, path: str, more: Mapping[str, Any] | None = None) -> Response:
    _require_queue(latest, path)
    return json_answer({**_queue_of(latest, path), **(more or {})}, headers=tag_of(latest))


def _queue_of(latest: QueueDocument, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "version": latest.version,
        **document.encode_queue(latest.queues[path]),
        "plan": None,
        "warnings": [],
    }


def _require_queue(latest: QueueDocument, path: str) -> None:
    if path not in latest.queues:
        raise NotFound(f"there is no queue {path}", remedy="list them with: mesos-gpu queue list")


def _at_queue(path: str, problems: list[Problem]) -> list[Problem]:
    """Return problems of the requested queue with paths inside it, and others with paths in the whole document."""
    place = document.place_of(path)
    return [
        Problem(problem.path.removeprefix(place) or "/", problem.reason)
        if problem.path == place or problem.path.startswith(f"{place}/")
        else problem
        for problem in problems
    ]
