"""The map of all cards: a letter for each, small enough to be asked for every few seconds by many."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.scheduler_api import SchedulerApi, View, is_used
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec.cluster import cards
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.quota import owner_of
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.node import GpuStatus, Node

FREE: Final = "f"
#: How a card stands, as a letter: of one that is not healthy its health, in upper case if a task holds it.
_LETTERS: Final = {
    Health.SUSPECT: "p",
    Health.SICK: "k",
    Health.LOST: "l",
    Health.DIRTY: "y",
    Health.DRAINED: "d",
    Health.UNKNOWN: "n",
}
_USED, _SHARED = "u", "s"
#: How long a map is good for, in seconds: it is made once for all who ask meanwhile.
_GOOD_FOR_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Map:
    """All cards at one moment; what each caller sees of `jobs` is worked out for each."""

    made_at: float
    nodes: list[cards.NodeCards]
    jobs: list[JobId | None]


class CardHandlers:
    """The routes' functions."""

    def __init__(self, scheduler: SchedulerApi, now: Callable[[], float] = time.monotonic) -> None:
        """Serve a scheduler. `now`: seconds of a clock that is never set back."""
        self._scheduler, self._now = scheduler, now
        self._map: _Map | None = None  # made and looked at while the state is read, one after the other

    async def list(self, request: Request) -> Response:
        """GET /v1/cards."""
        sight = Sight.of(request)
        seen = await result_of(self._scheduler.read(lambda view: self._seen(view, sight)))
        return await run_in_threadpool(json_answer, seen)

    def _seen(self, view: View, sight: Sight) -> cards.Cards:
        known = self._map
        if known is None or self._now() - known.made_at > _GOOD_FOR_S:
            known = self._map = _made(view, self._now())
        return {"nodes": known.nodes, "jobs": [_holder(view, id, sight) for id in known.jobs]}


def _made(view: View, now: float) -> _Map:
    by_node: dict[str, list[GpuStatus]] = defaultdict(list)
    nodes: dict[str, Node] = {}
    for status in view.gpus():
        by_node[status.node.id].append(status)
        nodes[status.node.id] = status.node
    numbers: dict[JobId | None, int] = {}
    made = [_node(view, nodes[id], statuses, numbers) for id, statuses in by_node.items()]
    made.sort(key=lambda node: (node["hostname"], node["agent_id"]))
    return _Map(now, made, [*numbers])


def _node(
    view: View, node: Node, statuses: list[GpuStatus], numbers: dict[JobId | None, int]
) -> cards.NodeCards:
    statuses.sort(key=lambda status: status.gpu.minor)
    return {
        "hostname": node.hostname,
        "agent_id": node.id,
        "lost": node.lost_at is not None,
        "drained": view.drain_of(node.hostname) is not None,
        "minors": [status.gpu.minor for status in statuses],
        "cards": "".join(_letter(view, status) for status in statuses),
        "held_by": [_number(view, status, numbers) for status in statuses],
    }


def _letter(view: View, status: GpuStatus) -> str:
    used = is_used(view, status)
    if status.health is not Health.OK:
        letter = _LETTERS[status.health]
        return letter.upper() if used else letter
    if view.is_shared(status.gpu.id):
        return _SHARED
    return _USED if used else FREE


def _number(view: View, status: GpuStatus, numbers: dict[JobId | None, int]) -> int | None:
    """Where the job that holds a whole card stands in the list of jobs; what holds none is no job."""
    holder = view.holder(status.gpu.id)
    if holder is None or view.is_shared(status.gpu.id):
        return None
    return numbers.setdefault(holder.job_id, len(numbers))


def _holder(view: View, id: JobId | None, sight: Sight) -> cards.CardHolder | None:
    job = view.jobs.get(id) if id else None
    if job is None or not sight.sees(job):
        return None
    return {"id": job.id, "name": job.spec.name, "owner": owner_of(job) or None}
