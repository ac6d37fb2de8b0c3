"""Map of all GPUs: one letter for each, small enough for many clients to read every few seconds."""

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
#: Letter of a GPU's health, if it is not ok; in upper case if a task holds the GPU.
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
    """All GPUs at one moment; the visible part of `jobs` is determined for each caller.

    Attributes:
        nodes: JSON of the GPUs by node.
        jobs: Jobs that hold GPUs.
        counted: Numbers of GPUs by kind.
        open_jobs: JSON of `jobs` for callers who see all; None until such a caller requests it.
    """

    nodes: bytes
    jobs: list[JobId | None]
    counted: shapes.Counted
    open_jobs: bytes | None = None


class CardHandlers:
    """HTTP handlers of the map of GPUs.

    Args:
        kept: Cache of the map.
    """

    def __init__(self, scheduler: SchedulerApi, kept: Kept[CardMap]) -> None:
        self._scheduler, self._map = scheduler, kept

    async def list(self, request: Request) -> Response:
        """GET /v1/cards: the map of all GPUs, with the jobs that hold them."""
        sight = Sight.of(request)

        def seen(view: View) -> tuple[CardMap, list[cards.CardHolder | None]]:
            card_map = self._map.of(view)
            done = sight.rights.is_open and card_map.open_jobs is not None
            return card_map, [] if done else [_holder(view, id, sight) for id in card_map.jobs]

        card_map, jobs = await result_of(self._scheduler.read_copy(seen))
        holders = card_map.open_jobs if sight.rights.is_open else None
        if holders is None:
            holders = await run_in_threadpool(_text, jobs)
        if sight.rights.is_open:
            card_map.open_jobs = holders
        body = b'{"nodes":' + card_map.nodes + b',"jobs":' + holders + b"}"
        return Response(body, media_type="application/json")


def _text(value: Sequence[cards.NodeCards] | Sequence[cards.CardHolder | None]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def card_map(view: View) -> CardMap:
    """Return the map of all GPUs."""
    by_node: dict[str, list[GpuStatus]] = defaultdict(list)
    nodes: dict[str, Node] = {}
    for status in gpu_statuses(view):
        by_node[status.node.id].append(status)
        nodes[status.node.id] = status.node
    numbers: dict[JobId | None, int] = {}
    cards_of_nodes = [_node(view, nodes[id], statuses, numbers) for id, statuses in by_node.items()]
    cards_of_nodes.sort(key=lambda node: (node["hostname"], node["agent_id"]))
    return CardMap(
        _text(cards_of_nodes), [*numbers], _counted("".join(node["cards"] for node in cards_of_nodes))
    )


def _counted(letters: str) -> shapes.Counted:
    """Return the numbers of GPUs by kind, from the letters of all GPUs."""
    counts = Counter(letters)
    drained = _LETTERS[Health.DRAINED]
    sick = [letter for letter in _LETTERS.values() if letter != drained]
    return {
        "gpus_total": len(letters),
        "gpus_used": sum(n for letter, n in counts.items() if letter.isupper() or letter in (_USED, _SHARED)),
        "gpus_sick": sum(counts[letter] + counts[letter.upper()] for letter in sick),
        "gpus_drained": counts[drained] + counts[drained.upper()],
    }


def _node(
    view: View, node: Node, statuses: list[GpuStatus], numbers: dict[JobId | None, int]
) -> cards.NodeCards:
    """Return the GPUs of a node; `numbers` collects the indexes of jobs."""
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
    """Return the letter of a GPU."""
    used = is_used(view, status)
    if status.health is not Health.OK:
        letter = _LETTERS[status.health]
        return letter.upper() if used else letter
    if is_shared(view, status.gpu.id):
        return _SHARED
    return _USED if used else FREE


def _number(view: View, status: GpuStatus, numbers: dict[JobId | None, int]) -> int | None:
    """Return the index in the list of jobs of the job that holds a whole GPU; None for a shared or free one."""
    holder = holder_of(view, status.gpu.id)
    if holder is None or is_shared(view, status.gpu.id):
        return None
    return numbers.setdefault(holder.job_id, len(numbers))


def _holder(view: View, id: JobId | None, sight: Sight) -> cards.CardHolder | None:
    job = view.jobs.get(id) if id else None
    if job is None or not sight.sees(job):
        return None
    return {"id": job.id, "name": job.spec.name, "owner": owner_of(job) or None}
