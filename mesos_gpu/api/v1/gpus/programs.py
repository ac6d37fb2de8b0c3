"""Routes for upgrades: facts about the running scheduler and the programs on hosts."""

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.adapters.sqlite.schema import latest
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.kept import Kept
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.spec.cluster import upgrade as shapes
from mesos_gpu.engine.reading.nodes import rolling_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.nodes.gpu import Program
from mesos_gpu.model.nodes.wires import OLDEST, SILENT, WIRE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.explain.silence import unfit


class UpgradeHandlers:
    """HTTP handlers of facts for upgrades."""

    def __init__(self, scheduler: SchedulerApi, settings: ApiSettings) -> None:
        self._scheduler, self._settings = scheduler, settings
        self._seen = Kept(self._made)

    async def show(self, _request: Request) -> Response:
        """GET /v1/upgrade: facts about this scheduler and the programs on hosts."""
        return json_answer(await result_of(self._scheduler.read_copy(self._seen.of)))

    def _made(self, view: View) -> shapes.Upgrade:
        """Return the facts for an upgrade."""
        return {
            "version": self._settings.version,
            "wire": WIRE,
            "oldest": OLDEST,
            "schema": latest(),
            "nodes": list(_nodes(view)),
            "replaced": rolling_of(view).done,
            "executors": _executors(view),
            "flags": list(self._settings.flags),
        }


def _nodes(view: View) -> Iterator[shapes.NodeProgram]:
    """Yield the programs of nodes that have monitors."""
    rolling = rolling_of(view)
    outdated, problems = dict(rolling.outdated), dict(rolling.problems)
    for node in sorted(view.nodes.values(), key=lambda node: (node.hostname, node.id)):
        if node.lost_at is not None or not node.monitor_launches:
            continue
        program = node.inventory.program if node.inventory is not None else None
        yield {
            "hostname": node.hostname,
            "agent_id": node.id,
            "program": None if program is None else _shown(program),
            "outdated": outdated.get(node.id),
            "unfit": unfit(node) or None,
            "replaced_now": node.id in rolling.under_way,
            "problem": problems.get(node.id),
        }


def _shown(program: Program) -> shapes.Program:
    return {
        "version": program.version,
        "wire": program.wire,
        "oldest": program.oldest,
        "digest": program.digest or None,
    }


def _executors(view: View) -> list[shapes.Executors]:
    """Return the executors of jobs whose tasks have not ended, by reported version."""
    kinds: dict[tuple[str | None, int], list[Task]] = {}
    for task in view.tasks.values():
        if task.job_id is not None and not task.ended:
            program = task.program
            kind = (program.version, program.wire) if program is not None else (None, SILENT)
            kinds.setdefault(kind, []).append(task)
    ends = {kind: _ends(view, tasks) for kind, tasks in kinds.items()}
    return [
        {
            "version": kind[0],
            "wire": kind[1],
            "tasks": len(kinds[kind]),
            "unlimited": sum(at is None for at in ends[kind]),
            "last_ends_at": max((at for at in ends[kind] if at is not None), default=None),
        }
        for kind in sorted(kinds, key=lambda kind: (kind[1], kind[0] or ""))
    ]


def _ends(view: View, tasks: list[Task]) -> list[float | None]:
    """Return the latest end of each task; None for a task without a time limit."""
    ends: list[float | None] = []
    for task in tasks:
        job = view.jobs.get(task.job_id) if task.job_id is not None else None
        limit_s = job.spec.timeout_s if job is not None else None
        begun = task.started_at or task.launched_at
        ends.append(None if limit_s is None or job is None else begun + limit_s + job.spec.kill_grace_s)
    return ends
