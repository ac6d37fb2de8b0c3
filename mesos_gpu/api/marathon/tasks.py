"""Routes of /v2/tasks, and of the tasks of an app."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mesos_gpu.access.rights import APP_WRITE
from mesos_gpu.api.asking import job_kill
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import json_answer, large_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.apps import app_seen
from mesos_gpu.api.marathon.asked import Place, flag, json_read
from mesos_gpu.api.marathon.core import AppChanges, result
from mesos_gpu.api.marathon.errors import Refused, no_group, no_task, not_json
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.apps import resting_volumes
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.policy.apps.task_ids import instance_id, instance_of_job, name_of

_STATUS: Final = {"running": (views.RUNNING,), "staging": views.STAGED}
Found = tuple[App, views.Launch]


@dataclass(frozen=True, slots=True)
class _Resting:
    """An instance with persistent volumes and without a task.

    Attributes:
        app: The instance's app.
        job_id: Last job that used the volumes.
        volumes: The instance's volumes.
    """

    app: App
    job_id: JobId
    volumes: Sequence[PersistentVolume]


class Tasks:
    """HTTP handlers of tasks: listing and killing them."""

    def __init__(self, core: AppChanges) -> None:
        self._core = core

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/tasks: all tasks of apps."""
        query = request.query_params
        statuses = [*query.getlist("status"), *query.getlist("status[]")]
        states = {state for status in statuses for state in _STATUS.get(status, ())}
        if _wants_text(request):
            return await self._endpoints(request, "/*")
        sight = AppSight.of(request)
        tasks = await self._core.read(lambda view: _tasks_of(view, view.catalog.root.all_apps(), sight))
        return await _listed([pair for pair in tasks if not states or pair[1].state in states])

    async def of_app(self, request: Request, place: Place) -> Response:
        """GET /v2/apps/{id}/tasks: the tasks of an app, or of all apps of a group with /v2/apps/{id}/*/tasks."""
        if _wants_text(request):
            return await self._endpoints(request, place.id)
        sight = AppSight.of(request)
        return await _listed(
            await self._core.read_copy(lambda view: _tasks_of(view, _apps(view, place.id, sight), sight))
        )

    async def _endpoints(self, request: Request, id: str) -> Response:
        """Return hosts and ports of the apps' tasks as text for scripts: a line for each port, divided by tabs."""
        sight = AppSight.of(request)
        apps = await self._core.read_copy(
            lambda view: [(app, views.launches_of(view, app, sight)) for app in _apps(view, id, sight)]
        )
        lines = (line for app, launches in apps for line in _lines(app, launches))
        return PlainTextResponse("".join(f"{line}\n" for line in lines))

    async def kill_of_app(self, request: Request, place: Place) -> Response:
        """DELETE /v2/apps/{id}/tasks: kill the tasks of an app."""
        host, sight = request.query_params.get("host", "*"), AppSight.of(request)
        tasks = await self._core.read(lambda view: _tasks_of(view, _apps(view, place.id, sight), sight))
        chosen = [pair for pair in tasks if host in ("*", pair[1].task.hostname)]
        return await self._end(request, chosen, await self._resting(request, place.id) if host == "*" else ())

    async def kill_one(self, request: Request, place: Place) -> Response:
        """DELETE /v2/apps/{id}/tasks/{task}: kill a task."""
        sight = AppSight.of(request)
        tasks = await self._core.read(lambda view: _tasks_of(view, _apps(view, place.id, sight), sight))
        chosen = [pair for pair in tasks if pair[1].task.id == place.item]
        resting = [
            instance
            for instance in await self._resting(request, place.id)
            if not chosen and instance_of_job(instance.job_id) == _instance_of(place.item)
        ]
        if resting:
            await self._end(request, (), resting)
            app, volumes = resting[0].app, [(volume.name, volume.id) for volume in resting[0].volumes]
            shown = {"id": place.item, "appId": app.id, "localVolumes": views.local_volumes(app, volumes)}
            return json_answer({"task": shown})
        if not chosen:
            raise no_task(place.item)
        answer = await self._end(request, chosen)
        return answer if flag(request, "scale") else json_answer({"task": views.task_json(*chosen[0])})

    async def kill_listed(self, request: Request, _place: Place) -> Response:
        """POST /v2/tasks/delete: kill the tasks of a list; missing ones are ignored."""
        ids = await json_read(request, _ids)
        sight = AppSight.of(request)
        tasks = await self._core.read(lambda view: _tasks_of(view, view.catalog.root.all_apps(), sight))
        return await self._end(request, [pair for pair in tasks if pair[1].task.id in ids])

    async def _resting(self, request: Request, id: str) -> Sequence[_Resting]:
        """Return the instances without tasks whose volumes the request wipes."""
        if not flag(request, "wipe"):
            return ()
        sight = AppSight.of(request)
        return await self._core.read(
            lambda view: [
                _Resting(app, job_id, volumes)
                for app in _apps(view, id, sight)
                if sight.sees(app)
                for job_id, volumes in resting_volumes(view, app.id).items()
            ]
        )

    async def _end(
        self, request: Request, chosen: Sequence[Found], resting: Sequence[_Resting] = ()
    ) -> Response:
        """Kill tasks and wipe resting instances; they are replaced unless the request scales the apps down."""
        if flag(request, "scale") and flag(request, "wipe"):
            raise Refused(400, "You cannot use scale and wipe at the same time.")
        sight = AppSight.of(request)
        apps = [app for app, _ in chosen] + [instance.app for instance in resting]
        for app in {app.id: app for app in apps}.values():
            sight.require(APP_WRITE, app)
        if flag(request, "scale"):
            kill: dict[str, tuple[JobId, ...]] = {}
            for app, launch in chosen:
                kill[app.id] = (*kill.get(app.id, ()), launch.job.id)
            deployment = await self._core.change(
                request, lambda root: root, force=flag(request, "force"), kill=kill
            )
            return result(deployment)
        wipe = flag(request, "wipe")
        jobs = [launch.job.id for _, launch in chosen] + [instance.job_id for instance in resting]
        for job_id in jobs:
            note.about("job", job_id)
        kills = [self._core.scheduler.request(job_kill(job_id, wipe=wipe)) for job_id in jobs]
        await asyncio.gather(*map(result_of, kills))
        return await _listed(chosen)


def _instance_of(task: str) -> str:
    """Return the id of the instance of a task; "" if it is not the task of an app."""
    name = name_of(task)
    return "" if name is None else instance_id(name.app, name.uuid)


def _ids(body: Any) -> frozenset[str]:
    """Return the task ids in a body.

    Raises:
        Refused: The body is not a list of task ids.
    """
    ids = body.get("ids") if isinstance(body, dict) else None
    if not isinstance(ids, list):
        raise not_json("error.path.missing" if ids is None else "error.expected.jsarray", at="/ids")
    for id in ids:
        if not isinstance(id, str) or name_of(id) is None:
            raise Refused(400, f"Invalid task id {id}")
    return frozenset(ids)


def _wants_text(request: Request) -> bool:
    """Return whether a client prefers text to JSON."""
    kinds = [kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").split(",")]
    return kinds[0] == "text/plain"


def _lines(app: App, launches: Iterable[views.Launch]) -> Iterable[str]:
    """Yield the lines of an app: name, service port, and "host:port" of each running task, each followed by a tab.

    Without ports there is one line with the name, a space, and the hosts.
    """
    tasks = [launch.task for launch in launches if launch.state == views.RUNNING]
    name = app.id.strip("/").replace("/", "_")
    ports = app.service_ports
    if not ports:
        yield "".join(f"{column}\t" for column in (name, " ", *sorted(task.hostname for task in tasks)))
    for i, port in enumerate(ports):
        places = sorted(f"{task.hostname}:{[*task.ports[i:], 0][0]}" for task in tasks)
        yield "".join(f"{column}\t" for column in (name, port, *places))


def _apps(view: View, id: str, sight: AppSight) -> Sequence[App]:
    """Return the app of an id, or the visible apps of a group for an id that ends in /*."""
    if not id.endswith("/*"):
        return [app_seen(view.catalog.root, id, sight)]
    group = tree.group_at(view.catalog.root, id[:-2] or "/")
    if group is None:
        raise no_group(id[:-2])
    return [app for app in group.all_apps() if sight.sees(app)]


def _tasks_of(view: View, apps: Iterable[App], sight: AppSight) -> list[Found]:
    """Return the tasks of visible apps that have not ended."""
    return [
        (app, launch) for app in apps if sight.sees(app) for launch in views.launches_of(view, app, sight)
    ]


async def _listed(tasks: Sequence[Found]) -> Response:
    return await large_answer({"tasks": (views.task_json(app, launch) for app, launch in tasks)})
