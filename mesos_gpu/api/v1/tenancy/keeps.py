"""Routes that protect jobs from being ended for idle GPUs."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.rights import JOB_KEEP
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import job_of, read_of, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.v1 import views
from mesos_gpu.engine.events import KeepAsked, KeepWithdrawn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tenancy import MAX_S
from mesos_gpu.wire.checking import Problem, is_number, object_of, show

_MAX: Final = {"for_s": MAX_S, "until": 1e11}


class IdleProtectionHandlers:
    """HTTP handlers of jobs' protection from being ended for idle GPUs."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def keep(self, request: Request) -> Response:
        """PUT /v1/jobs/{id}/keep: protect a job for a time, or until a time."""
        for_s, until = _time_of(await read_of(request, object_of))
        job_id = await self._job_id(request)
        return await self._answer(request, KeepAsked(job_id, for_s, until, rights_of(request).caller.name))

    async def withdraw(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}/keep: end the protection of a job."""
        return await self._answer(request, KeepWithdrawn(await self._job_id(request)))

    async def _job_id(self, request: Request) -> JobId:
        """Return the id of the job that the path names, which the caller may protect."""
        job_name, sight = request.path_params["id"], Sight.of(request)
        read = self._scheduler.read(
            lambda view: sight.require(JOB_KEEP, job_of(view, job_name, sight.sees)).id
        )
        job_id = await result_of(read)
        note.about("job", job_id)
        return job_id

    async def _answer(self, request: Request, wish: KeepAsked | KeepWithdrawn) -> Response:
        await result_of(self._scheduler.request(wish))
        sight = Sight.of(request)
        shown = self._scheduler.read(lambda view: views.job(view, view.jobs[wish.job_id], sight))
        return json_answer(await result_of(shown))


def _time_of(body: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the duration, or the end, of a protection; the other is None."""
    unknown = f"there is no such field; fields are {' and '.join(_MAX)}"
    problems = [Problem(f"/{key}", unknown) for key in body if key not in _MAX]
    fields = {key: body[key] for key in _MAX if body.get(key) is not None}
    if len(fields) != 1:
        problems.append(
            Problem("", "must have either for_s, in seconds, or until, in seconds since the epoch")
        )
    for key, value in fields.items():
        if not is_number(value) or not 0 < value <= _MAX[key]:
            why = f"must be a number of seconds above 0, at most {_MAX[key]:g}, got {show(value)}"
            problems.append(Problem(f"/{key}", why))
    if problems:
        raise invalid(*problems)
    return fields.get("for_s"), fields.get("until")
