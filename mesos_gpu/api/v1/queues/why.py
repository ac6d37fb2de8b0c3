"""Route that explains why the jobs of a queue wait."""

from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import QUEUE_SEE
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import queue_shares as shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.engine.reading.queues import explain_queue
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.queue_why import QueuePool, QueueWhy, WaitGroup
from mesos_gpu.model.shares.units import number_of


class QueueWhys:
    """HTTP handler of explanations of queues."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def show(self, request: Request) -> Response:
        """GET /v1/queue-why/{queue}: explain why the jobs of a queue, and of queues below it, wait."""
        path, sight = str(request.path_params["queue"]), Sight.of(request)
        require(rights_of(request), QUEUE_SEE, Subject(queue=path))
        return json_answer(
            await result_of(
                self._scheduler.read_copy(lambda view: _shown(view, explain_queue(view, path), sight))
            )
        )


def _shown(view: View, why: QueueWhy, sight: Sight) -> shapes.QueueWhy:
    """Return the JSON of an explanation without invisible jobs."""
    shown: shapes.QueueWhy = {
        "path": why.path,
        "summary": why.summary,
        "pools": [_pool(pool) for pool in why.pools],
        "waits": [_wait(group, told=_sees(view, sight, group.first)) for group in why.waits],
        "first": views.why(view, why.first, sight)
        if why.first is not None and _sees(view, sight, why.first.job_id)
        else None,
    }
    return cast("shapes.QueueWhy", sight.veiled(view, shown))


def _pool(pool: QueuePool) -> shapes.QueuePool:
    share = pool.share
    return {
        "pool": share.pool,
        "guarantee_gpus": number_of(share.guarantee),
        "seated_gpus": number_of(pool.seated),
        "lent_gpus": number_of(share.lent),
        "held_gpus": number_of(share.held),
        "due_gpus": number_of(share.due),
        "limit_gpus": None if share.limit is None else number_of(share.limit),
        "pending_gpus": number_of(share.pending),
    }


def _sees(view: View, sight: Sight, job_id: JobId) -> bool:
    return sight.sees(view.jobs[job_id])


def _wait(group: WaitGroup, *, told: bool) -> shapes.QueueWait:
    """Return the JSON of a group of waiting jobs; `told`: whether its first job is visible."""
    return {
        "reason": group.reason,
        "jobs": group.jobs,
        "gpus": number_of(group.gpus_milli),
        "first": group.first,
        "words": group.words if told else "",
    }
