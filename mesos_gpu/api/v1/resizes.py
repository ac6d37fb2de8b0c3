"""Routes for resizing the shares of running jobs, which the job's host must confirm."""

import time
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.rights import JOB_RESIZE
from mesos_gpu.api.changes import Changes
from mesos_gpu.api.http import note
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import Refusal, json_answer, valid
from mesos_gpu.api.http.requests import job_of, read_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.engine.events import ResizeRequested, ResizeWithdrawn
from mesos_gpu.engine.reading.jobs import round_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import JobId
from mesos_gpu.wire.shares import decode_resize

_PENDING: Final = ("asked", "withdrawing")


class _Seen(NamedTuple):
    """A job, and whether it is about to restart."""

    job: shapes.Job
    restarts: bool


class Resizes:
    """HTTP handlers of resizes.

    Args:
        changes: Changes of jobs, for waiting.
    """

    def __init__(self, scheduler: SchedulerApi, changes: Changes) -> None:
        self._scheduler, self._changes = scheduler, changes

    async def resize(self, request: Request) -> Response:
        """PATCH /v1/jobs/{id}: resize a job; 200: its host has done it, 409: it cannot, 202: it has not answered."""
        patch = valid(await read_of(request, decode_resize))
        restart, wait_s = asked.RESTART.of(request), asked.ANSWER_S.of(request)
        job_id = await self._job_id(request)
        try:
            await result_of(self._scheduler.request(ResizeRequested(job_id, patch, restart=restart)))
        except Conflict as error:  # its text may name an invisible job
            sight, texts = Sight.of(request), [error.what, error.remedy]
            what, remedy = await result_of(self._scheduler.read(lambda view: sight.veiled(view, texts)))
            raise Conflict(what, remedy=remedy) from error
        return await self._answer(request, job_id, wait_s)

    async def withdraw(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}/resize: withdraw a resize.

        200 when the host has restored the old share, 409 if it cannot, 202 while it has not answered.
        """
        wait_s, job_id = asked.ANSWER_S.of(request), await self._job_id(request)
        await result_of(self._scheduler.request(ResizeWithdrawn(job_id)))
        return await self._answer(request, job_id, wait_s)

    async def _job_id(self, request: Request) -> JobId:
        """Return the id of the job that the path names, which the caller may resize."""
        job_name, sight = request.path_params["id"], Sight.of(request)
        read = self._scheduler.read(
            lambda view: sight.require(JOB_RESIZE, job_of(view, job_name, sight.sees)).id
        )
        job_id = await result_of(read)
        note.about("job", job_id)
        return job_id

    async def _answer(self, request: Request, job_id: JobId, wait_s: float) -> Response:
        """Wait for the host's answer to a resize or its withdrawal, and return the response."""
        state = await self._answered(request, job_id, time.monotonic() + wait_s)
        resize = state.job["resize"]
        if state.restarts or resize is None or resize["state"] in _PENDING:
            return json_answer(state.job, 202)
        if resize["state"] == "refused":
            raise _refusal(job_id, resize)
        return json_answer(state.job)

    async def _answered(self, request: Request, job_id: JobId, deadline: float) -> _Seen:
        """Return the job when its host has answered, or at the deadline (`time.monotonic()`)."""
        while True:
            state = await self._read_job(request, job_id)
            resize, left_s = state.job["resize"], deadline - time.monotonic()
            if state.restarts or resize is None or resize["state"] not in _PENDING or left_s <= 0:
                return state
            await self._changes.wait(
                job_id, state.job["version"], left_s, lambda: self._version(request, job_id)
            )

    async def _read_job(self, request: Request, job_id: JobId) -> _Seen:
        """Return the job with the caller's current visibility."""
        sight = Sight.of(request)

        def look(view: View) -> _Seen:
            job = job_of(view, job_id, sight.sees)
            return _Seen(views.job(view, job, sight), any(task.evicted for task in round_of(view, job)))

        return await result_of(self._scheduler.read(look))

    async def _version(self, request: Request, job_id: JobId) -> int:
        return (await self._read_job(request, job_id)).job["version"]


def _refusal(job_id: JobId, resize: shapes.Resize) -> Refusal:
    """Return the refusal for a resize that the job's host has refused."""
    what = f"job {job_id} is not resized: {resize['reason']}"
    if resize["used_memory_mib"] is not None:
        return Refusal(
            409,
            "in-use",
            what,
            remedy="request at least the memory in use, or wait with: mesos-gpu resize --wait",
        )
    again = f"restart it with this share: mesos-gpu resize {job_id} --restart, with the same amounts"
    remedy = again if resize["restart"] else f"see its host's output: mesos-gpu logs {job_id}"
    return Refusal(409, "refused", what, remedy=remedy)
