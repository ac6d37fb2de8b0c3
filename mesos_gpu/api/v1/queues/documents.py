"""The tree of queues: read, and changed as a whole."""

from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http import note
from mesos_gpu.api.http.requests import Number, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.queues import seen_queues
from mesos_gpu.api.v1.documents import Documents, Versioned
from mesos_gpu.model.tenancy import NO_QUEUES, QueueDocument
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


class QueueDocuments(Documents[QueueDocument]):
    """Handlers of the routes of the document."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        """Serve a scheduler."""
        super().__init__(scheduler, QUEUES)

    async def show(self, request: Request) -> Response:
        """GET /v1/queues."""
        return self.shown(seen_queues(rights_of(request), await self.latest()))

    async def put(self, request: Request) -> Response:
        """PUT /v1/queues: as a whole, by who has read the version that is the latest."""
        wanted, expected = await self.asked(request)
        return self.shown(await self.change(request, wanted, expected))

    async def change(self, request: Request, wanted: QueueDocument, expected: int) -> QueueDocument:
        """Let the document be so; the version that it became."""
        after_s = RECLAIM_AFTER_S.of(request)
        wanted = replace(wanted, by=rights_of(request).caller.name)
        future = self._scheduler.set_queues(wanted, expected, after_s if after_s >= 0 else None)
        now = await result_of(future)
        note.about("queues", str(now.version))
        return now
