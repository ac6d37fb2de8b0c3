"""Routes of tasks that Mesos knows and the scheduler's state does not: listing, adopting and ending them."""

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.spec import shapes
from mesos_gpu.engine.events import UnknownAdopted, UnknownKilled
from mesos_gpu.engine.reading.jobs import unknown_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.tasks.task import Task


class UnknownTasks:
    """HTTP handlers of unknown tasks."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, _request: Request) -> Response:
        """GET /v1/tasks/unknown: list unknown tasks."""
        return json_answer({"tasks": await result_of(self._scheduler.read(_shown))})

    async def adopt(self, request: Request) -> Response:
        """POST /v1/tasks/unknown/{id}/adopt: assign a task to its job; answers with the remaining ones."""
        await result_of(self._scheduler.request(UnknownAdopted(TaskId(request.path_params["id"]))))
        return await self.list(request)

    async def kill(self, request: Request) -> Response:
        """DELETE /v1/tasks/unknown/{id}: end a task; 202, as it ends later."""
        await result_of(self._scheduler.request(UnknownKilled(TaskId(request.path_params["id"]))))
        return json_answer({"tasks": await result_of(self._scheduler.read(_shown))}, 202)


def _shown(view: View) -> list[shapes.UnknownTask]:
    return [_task(task) for task in unknown_tasks(view)]


def _task(task: Task) -> shapes.UnknownTask:
    assert task.unknown is not None
    listed = task.unknown.listed
    label = listed.label if listed else None
    return {
        "id": task.id,
        "job_id": label.job_id if label else None,
        "name": listed.name if listed and listed.name else None,
        "state": task.state.value,
        "hostname": task.hostname,
        "agent_id": task.agent_id,
        "gpu_ids": list(task.gpus),
        "user": label.user if label else None,
        "app": label.app if label else None,
        "tasks": label.tasks if label else 1,
        "since": task.unknown.since,
        "launched_at": label.launched_at if label else None,
        "kill_requested": task.kill_sent_at is not None,
        "adoptable": label is not None,
    }
