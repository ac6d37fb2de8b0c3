"""Plans of moves that make room for a job; nothing is changed."""

from collections.abc import Collection
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer, valid
from mesos_gpu.api.http.requests import in_turn, job_of, read_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.engine.reading.jobs import defrag_problem
from mesos_gpu.engine.reading.nodes import gpu_defaults
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec, JobState
from mesos_gpu.model.nodes.plan import Plan
from mesos_gpu.policy.room import defrag
from mesos_gpu.wire.checking import object_of
from mesos_gpu.wire.job_fields import HIDDEN
from mesos_gpu.wire.jobs import left_open_of, spec_from_mapping


class Plans:
    """HTTP handlers of plans."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def for_request(self, request: Request) -> Response:
        """POST /v1/plan/defrag: plan moves for a request."""
        spec, left = await read_of(request, _spec)

        def read(view: View) -> defrag.Problem:
            return defrag_problem(view, gpu_defaults(view).given_to(spec, left) if left else spec)

        return await self._planned(request, await result_of(self._scheduler.read_copy(read)))

    async def for_job(self, request: Request) -> Response:
        """GET /v1/plan/defrag/{id}: plan moves for a waiting job."""
        job_name, sight = request.path_params["id"], Sight.of(request)

        def read(view: View) -> defrag.Problem:
            job = job_of(view, job_name, sight.sees)
            if job.state is not JobState.PENDING:
                what = f"job {job.id} is {job.state.value}: only waiting jobs need room"
                raise Conflict(what, remedy="name a waiting job; list them with: mesos-gpu queue")
            return defrag_problem(view, job)

        return await self._planned(request, await result_of(self._scheduler.read_copy(read)))

    async def _planned(self, request: Request, problem: defrag.Problem) -> Response:
        """Compute a plan, and answer with it."""
        sight = Sight.of(request)
        # The search may take long: it must not delay the engine or other requests.
        plan = await in_turn(request, partial(defrag.plan, problem))
        moved = {JobId(move.job_id) for move in plan.moves}

        def unseen(view: View) -> frozenset[str]:
            return frozenset(id for id in moved if not (id in view.jobs and sight.sees(view.jobs[id])))

        hidden = frozenset() if sight.rights.is_open else await result_of(self._scheduler.read(unseen))
        return json_answer(_shown(problem, plan, hidden))


def _spec(body: bytes) -> tuple[JobSpec, frozenset[str]]:
    """Return the job of a request, and those of its CPUs and memory that get defaults."""
    request = object_of(body)
    if not any(request.get(key) is not None for key in ("command", "argv", "image")):
        request["command"] = "true"  # the plan does not depend on the command
    return valid(spec_from_mapping(request)), left_open_of(request)


def _shown(problem: defrag.Problem, plan: Plan, hidden: Collection[str]) -> shapes.Plan:
    """Return the JSON of a plan. `hidden`: ids of jobs that are invisible to the caller."""
    targets: list[shapes.Place] = [
        {"hostname": target.hostname, "gpu_ids": list(target.gpus)} for target in plan.targets
    ]
    return {
        "fits": plan.fits,
        "feasible": plan.feasible,
        "proven_fewest": plan.proven,
        "target": targets if problem.tasks > 1 else next(iter(targets), None),
        "moves": [
            {
                "job_id": HIDDEN if move.job_id in hidden else move.job_id,
                "name": HIDDEN if move.job_id in hidden else move.name,
                "from": move.source,
                "to": move.to,
                "gpu_ids": list(move.gpus),
                "lost_gpu_s": move.lost_gpu_s,
            }
            for move in plan.moves
        ],
        "lost_gpu_s": plan.lost_gpu_s,
        "reason": plan.reason,
    }
