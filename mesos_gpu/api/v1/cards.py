"""The map of all cards: a letter for each, small enough to be asked for every few seconds by many."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.kept import Kept
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


@dataclass(frozen=True, slots=True)
class _Map:
    """All cards at one moment; what each caller sees of `jobs` is worked out for each. `nodes` is JSON already."""

    nodes: bytes
    jobs: list[JobId | None]


class CardHandlers:
    """The routes' functions."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        """Serve a scheduler."""
        self._scheduler = scheduler
        self._map = Kept(_made)

    async def list(self, request: Request) -> Response:
        """GET /v1/cards."""
        sight = Sight.of(request)

        def seen(view: View) -> tuple[bytes, list[cards.CardHolder | None]]:
            known = self._map.of(view)
            return known.nodes, [_holder(view, id, sight) for id in known.jobs]

        nodes, jobs = await result_of(self._scheduler.read(seen))
        holders = await run_in_threadpool(_text, jobs)
        body = b'{"nodes":' + nodes + b',"jobs":' + holders + b"}"
        return Response(body, media_type="application/json")


def _text(value: Sequence[cards.NodeCards] | Sequence[cards.CardHolder | None]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _made(view: View) -> _Map:
    by_node: dict[str, list[GpuStatus]] = defaultdict(list)
    nodes: dict[str, Node] = {}
    for status in view.gpus():
        by_node[status.node.id].append(status)
        nodes[status.node.id] = status.node
    numbers: dict[JobId | None, int] = {}
    made = [_node(view, nodes[id], statuses, numbers) for id, statuses in by_node.items()]
    made.sort(key=lambda node: (node["hostname"], node["agent_id"]))
    return _Map(_text(made), [*numbers])


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
