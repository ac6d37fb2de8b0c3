"""Routes of fair shares of queues, and their explanation."""

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import QUEUE_SEE
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.queues import sees_queue
from mesos_gpu.api.spec import queue_shares as shapes
from mesos_gpu.engine.reading.queues import path_share, queue_shares
from mesos_gpu.model.queue_share import QueueShare, UserShare
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.policy.tenancy.tree import lineage

_OF_HOUR = 3600 * 1000  # thousandths of cost times seconds, for an hour of a GPU of cost 1


class QueueShares:
    """HTTP handlers of fair shares."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/queue-shares: shares of the visible queues."""
        rights = rights_of(request)
        shares = await result_of(self._scheduler.read_copy(lambda view: queue_shares(view)))
        visible = _seen(rights, [share.path for share in shares])
        return json_answer({"shares": [_share(share) for share in shares if share.path in visible]})

    async def show(self, request: Request) -> Response:
        """GET /v1/queue-shares/{queue}: the steps to the share of a queue, and its users."""
        path = str(request.path_params["queue"])
        require(rights_of(request), QUEUE_SEE, Subject(queue=path))
        share = await result_of(self._scheduler.read_copy(lambda view: path_share(view, path)))
        answer: shapes.PathShare = {
            "path": share.path,
            "steps": [_share(step) for step in share.steps],
            "users": [_user(user) for user in share.users],
        }
        return json_answer(answer)


def _seen(rights: Rights, paths: list[str]) -> set[str]:
    if rights.may(QUEUE_SEE):
        return set(paths)
    return {ancestor for path in paths if sees_queue(rights, path) for ancestor in lineage(path)}


def _share(share: QueueShare) -> shapes.QueueShare:
    return {
        "path": share.path,
        "pool": share.pool,
        "guarantee_gpus": number_of(share.guarantee),
        "limit_gpus": None if share.limit is None else number_of(share.limit),
        "held_gpus": number_of(share.held),
        "pending_gpus": number_of(share.pending),
        "over_gpus": number_of(share.over),
        "lent_gpus": number_of(share.lent),
        "due_gpus": number_of(share.due),
        "given_gpus": number_of(share.given),
        "floor_gpus": number_of(share.floor),
        "kept_gpus": number_of(share.kept),
        "rest_gpus": number_of(share.rest),
        "weight": share.weight,
        "weights": share.weights,
        "borrowed_gpus": number_of(share.borrowed),
        "used_gpu_hours": _hours(share.use),
    }


def _user(user: UserShare) -> shapes.UserShare:
    return {
        "user": user.user,
        "shares": user.shares,
        "used_gpu_hours": _hours(user.use),
        "held_gpus": number_of(user.held),
        "rank": user.rank,
    }


def _hours(milli_s: int) -> float:
    return round(milli_s / _OF_HOUR, 3)
