"""The map of all cards: a letter for each, small enough to be asked for every few seconds by many."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.kept import Kept
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.spec.cluster import cards
from mesos_gpu.engine.reading.nodes import drain_of, gpu_statuses, holder_of, is_shared, is_used
from mesos_gpu.engine.reading.view import View
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


@dataclass(slots=True)
class CardMap:
    """All cards at one moment; what a caller sees of `jobs` is worked out for each.

    Attributes:
        nodes: Their cards, as JSON.
        jobs: Those that hold cards.
        counted: How many cards there are of each kind.
        open_jobs: `jobs` for callers who see all, as JSON; None: none has asked.
    """

    nodes: bytes
    jobs: list[JobId | None]
    counted: shapes.Counted
    open_jobs: bytes | None = None


class CardHandlers:
    """The routes' functions."""

    def __init__(self, scheduler: SchedulerApi, kept: Kept[CardMap]) -> None:
        """Serve a scheduler."""
        self._scheduler, self._map = scheduler, kept

    async def list(self, request: Request) -> Response:
        """GET /v1/cards."""
        sight = Sight.of(request)

        def seen(view: View) -> tuple[CardMap, list[cards.CardHolder | None]]:
            known = self._map.of(view)
            done = sight.rights.is_open and known.open_jobs is not None
            return known, [] if done else [_holder(view, id, sight) for id in known.jobs]

        known, jobs = await result_of(self._scheduler.read_copy(seen))
        holders = known.open_jobs if sight.rights.is_open else None
        if holders is None:
            holders = await run_in_threadpool(_text, jobs)
        if sight.rights.is_open:
            known.open_jobs = holders
        body = b'{"nodes":' + known.nodes + b',"jobs":' + holders + b"}"
        return Response(body, media_type="application/json")


def _text(value: Sequence[cards.NodeCards] | Sequence[cards.CardHolder | None]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def card_map(view: View) -> CardMap:
    """All cards now."""
    by_node: dict[str, list[GpuStatus]] = defaultdict(list)
    nodes: dict[str, Node] = {}
    for status in gpu_statuses(view):
        by_node[status.node.id].append(status)
        nodes[status.node.id] = status.node
    numbers: dict[JobId | None, int] = {}
    made = [_node(view, nodes[id], statuses, numbers) for id, statuses in by_node.items()]
    made.sort(key=lambda node: (node["hostname"], node["agent_id"]))
    return CardMap(_text(made), [*numbers], _counted("".join(node["cards"] for node in made)))


def _counted(letters: str) -> shapes.Counted:
    """How many cards there are of each kind, by the letters of all."""
    each = Counter(letters)
    drained = _LETTERS[Health.DRAINED]
    sick = [letter for letter in _LETTERS.values() if letter != drained]
    return {
        "gpus_total": len(letters),
        "gpus_used": sum(n for letter, n in each.items() if letter.isupper() or letter in (_USED, _SHARED)),
        "gpus_sick": sum(each[letter] + each[letter.upper()] for letter in sick),
        "gpus_drained": each[drained] + each[drained.upper()],
    }


def _node(
    view: View, node: Node, statuses: list[GpuStatus], numbers: dict[JobId | None, int]
) -> cards.NodeCards:
    statuses.sort(key=lambda status: status.gpu.place)
    return {
        "hostname": node.hostname,
        "agent_id": node.id,
        "lost": node.lost_at is not None,
        "drained": drain_of(view, node.hostname) is not None,
        "indexes": [status.gpu.index for status in statuses],
        "minors": [status.gpu.minor for status in statuses],
        "cards": "".join(_letter(view, status) for status in statuses),
        "held_by": [_number(view, status, numbers) for status in statuses],
    }


def _letter(view: View, status: GpuStatus) -> str:
    used = is_used(view, status)
    if status.health is not Health.OK:
        letter = _LETTERS[status.health]
        return letter.upper() if used else letter
    if is_shared(view, status.gpu.id):
        return _SHARED
    return _USED if used else FREE


def _number(view: View, status: GpuStatus, numbers: dict[JobId | None, int]) -> int | None:
    """Where the job that holds a whole card stands in the list of jobs; what holds none is no job."""
    holder = holder_of(view, status.gpu.id)
    if holder is None or is_shared(view, status.gpu.id):
        return None
    return numbers.setdefault(holder.job_id, len(numbers))


def _holder(view: View, id: JobId | None, sight: Sight) -> cards.CardHolder | None:
    job = view.jobs.get(id) if id else None
    if job is None or not sight.sees(job):
        return None
    return {"id": job.id, "name": job.spec.name, "owner": owner_of(job) or None}
