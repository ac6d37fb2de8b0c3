"""Routes of services: names whose requests are split over apps; as JSON, or for load balancers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import APP_SEE, SERVICE_WRITE
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer, valid
from mesos_gpu.api.http.requests import Number, read_of, result_of
from mesos_gpu.api.http.rights import require
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.api.sight.hosts import PORT, Others, wanted_by_service
from mesos_gpu.engine.events import SplitDropped, SplitSet
from mesos_gpu.engine.reading.apps import serving_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import Backend, TrafficSplit
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.apps import backends
from mesos_gpu.policy.apps.service_labels import limits_service
from mesos_gpu.wire import split
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.export import haproxy, traefik
from mesos_gpu.wire.job_fields import HIDDEN

T = TypeVar("T")
JSON, HAPROXY, TRAEFIK = "json", "haproxy", "traefik"
FORMATS: Final = (JSON, HAPROXY, TRAEFIK)
HTTP_PORT: Final = Number("http_port", 80, 1, 65535)


class ServiceHandlers:
    """HTTP handlers of the routes below /v1/services."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/services: list services, or export them for a load balancer."""
        form, groups = _format(request), request.query_params.getlist("group")
        port = int(HTTP_PORT.of(request))
        sight = AppSight.of(request)
        facts = await self._read(
            lambda view: _facts(view, view.splits.values(), sight, everything=bool(groups))
        )
        return await run_in_threadpool(lambda: _all_as(form, facts, groups, port))

    async def show(self, request: Request) -> Response:
        """GET /v1/services/{name}: a service."""
        form, name = _format(request), _name(request)
        sight = AppSight.of(request)
        facts = await self._read(lambda view: _facts(view, [_named(view, name, sight)], sight))
        return _one_as(form, facts)

    async def put(self, request: Request) -> Response:
        """PUT /v1/services/{name}: create or replace a service."""
        service = valid(await read_of(request, partial(split.decode, _name(request))))
        sight = AppSight.of(request)
        unknown = await self._read(lambda view: _faults(view, service, sight))
        if unknown:
            raise invalid(*unknown)
        await result_of(self._scheduler.request(SplitSet(service)))
        return _one_as(JSON, await self._read(lambda view: _facts(view, [service], sight)))

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/services/{name}: delete a service."""
        name, sight = _name(request), AppSight.of(request)

        def gather(view: View) -> "_Facts":
            split = _named(view, name, sight)
            _require(_by_id(view), split, sight)
            return _facts(view, [split], sight)

        facts = await self._read(gather)
        await result_of(self._scheduler.request(SplitDropped(name)))
        return _one_as(JSON, facts)

    async def _read(self, fn: Callable[[View], T]) -> T:
        return await result_of(self._scheduler.read(fn))


# --- on the engine's thread


@dataclass(frozen=True, slots=True)
class _Facts:
    """Immutable facts from which answers are made."""

    splits: tuple[TrafficSplit, ...]
    apps: Mapping[str, App]
    serving: Mapping[str, Sequence[backends.Address]]  # addresses of serving tasks, by app


def _facts(view: View, splits: Any, sight: AppSight, *, everything: bool = False) -> _Facts:
    """Return facts about the visible apps of `splits`, or about all visible apps."""
    apps_by_id = _by_id(view)
    splits = tuple(part for service in splits if (part := _part_of(service, apps_by_id, sight)))
    app_ids = {id for service in splits for id in service.weights}
    apps = {
        app.id: _shown(app, sight)
        for app in view.catalog.root.all_apps()
        if (everything or app.id in app_ids) and sight.sees(app)
    }
    return _Facts(splits, apps, {id: [_address(task) for task in serving_tasks(view, id)] for id in apps})


def _shown(app: App, sight: AppSight) -> App:
    """Return an app without hidden fields.

    Hidden labels that limit access to its services stay, without their values, so that these services are never
    exported.
    """
    shown = sight.shown(app)
    hidden = (label for label in app.labels if label not in shown.labels)
    limits = {label: HIDDEN for label in hidden if limits_service(label)}
    return replace(shown, labels={**shown.labels, **limits}) if limits else shown


def _address(task: Task) -> backends.Address:
    """Return a task's address by its agent's URL: a load balancer may not know the name of the host."""
    return task.id, urlsplit(task.agent_url).hostname or task.hostname, task.proved_ports


def _by_id(view: View) -> Mapping[str, App]:
    return {app.id: app for app in view.catalog.root.all_apps()}


def _part_of(split: TrafficSplit, known: Mapping[str, App], sight: AppSight) -> TrafficSplit | None:
    """Return a service with its visible apps; None if none is visible. A removed app is judged by its path."""
    if sight.rights.is_open:
        return split
    visible = {
        id: weight
        for id, weight in split.weights.items()
        if (sight.sees(known[id]) if id in known else sight.rights.may(APP_SEE, Subject(app=id)))
    }
    return replace(split, weights=visible) if visible else None


def _require(known: Mapping[str, App], split: TrafficSplit, sight: AppSight) -> None:
    """Require the right to change the services of all apps of a service, including removed ones."""
    for id in split.weights:
        if id in known:
            sight.require(SERVICE_WRITE, known[id])
        else:
            require(sight.rights, SERVICE_WRITE, Subject(app=id))


def _named(view: View, name: str, sight: AppSight) -> TrafficSplit:
    """Return the service with a name.

    Raises:
        NotFound: It does not exist, or none of its apps is visible.
    """
    split = view.splits.get(name)
    if split is None or _part_of(split, _by_id(view), sight) is None:
        raise NotFound(f"there is no service {name}", remedy="list them with: mesos-gpu service list")
    return split


def _faults(view: View, wanted: TrafficSplit, sight: AppSight) -> list[Problem]:
    """Return the faults of a requested service.

    Raises:
        Refusal: It, or the service that it replaces, belongs to apps whose services the caller may not change.
    """
    apps = _by_id(view)
    visible = {id for id, app in apps.items() if sight.sees(app)}
    unknown = [
        Problem(split.place_of(id), f"there is no app {id}; create it first, or correct the id")
        for id in wanted.weights
        if id not in visible
    ]
    if unknown:
        return unknown
    there = view.splits.get(wanted.name)
    if not sight.rights.is_open:
        _require(apps, wanted, sight)
        if there is not None and _part_of(there, apps, sight) is None:
            what = f"the name {wanted.name} belongs to a service of another owner"
            raise Refusal(403, "forbidden", what, remedy="choose another name")
        if there is not None:
            _require(apps, there, sight)
    others = Others(sight, apps, view.splits.values())
    return [
        Problem(
            "/port" if claim.startswith(PORT) else "/hosts",
            f"{claim} belongs to a service of another owner; choose another one",
        )
        for claim in others.have(wanted_by_service(wanted), but=wanted.name)
    ]


# --- answers


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _format(request: Request) -> str:
    form = request.query_params.get("format", JSON)
    if form not in FORMATS:
        raise invalid(Problem("/format", f"must be {', '.join(FORMATS)}, got {form!r}"))
    return form


def _serving(facts: _Facts) -> backends.Serving:
    return lambda id: facts.serving.get(id, ())


def _one_as(form: str, facts: _Facts) -> Response:
    """Answer with a service; HAProxy gets its backend only."""
    (service,) = facts.splits
    backend = backends.named(service, facts.apps, _serving(facts))
    if form == HAPROXY:
        return _text(haproxy.render([backend], http_port=0, sections=False))
    return json_answer(traefik.render([backend]) if form == TRAEFIK else _json(backend, service, facts))


def _all_as(form: str, facts: _Facts, groups: Sequence[str], http_port: int) -> Response:
    """Answer with all named services, and those that labels of apps define for any of `groups`."""
    by_name = {service.name: service for service in facts.splits}
    shown = [
        backends.named(service, facts.apps, _serving(facts))
        for service in sorted(facts.splits, key=lambda s: s.name)
    ]
    shown += backends.labelled(facts.apps.values(), _serving(facts), groups) if groups else ()
    shown = backends.without_clashes(shown, http_port)
    if form == HAPROXY:
        return _text(haproxy.render(shown, http_port=http_port))
    if form == TRAEFIK:
        return json_answer(traefik.render(shown))
    return json_answer({"services": [_json(backend, by_name.get(backend.name), facts) for backend in shown]})


def _text(text: str) -> Response:
    return Response(text, media_type="text/plain")


def _json(backend: Backend, wanted: TrafficSplit | None, facts: _Facts) -> dict[str, Any]:
    """Return the JSON of a service; `wanted`: its definition, None if labels define it."""
    total = sum(server.weight for server in backend.servers)
    weights = wanted.weights if wanted else backend.shares
    return {
        "name": backend.name,
        "mode": backend.mode.value,
        "port": backend.port,
        "hosts": list(backend.hosts),
        "balance": backend.balance,
        "sticky": backend.sticky,
        "apps": [_app_json(id, weight, backend, facts, total) for id, weight in weights.items()],
        "servers": [
            {
                "task_id": server.task_id,
                "app": server.app_id,
                "host": server.host,
                "port": server.port,
                "weight": server.weight,
            }
            for server in backend.servers
        ],
        "asked": split.encode(wanted) if wanted else None,
        "problems": list(backend.problems),
        "path": backend.path or None,
        "login": backend.login is not None,
        "https_only": backend.https_only,
        "left_out": backend.left_out or None,
        "left_out_of_traefik": traefik.why_left_out(backend) or None,
    }


def _app_json(id: str, weight: int, backend: Backend, facts: _Facts, total: int) -> dict[str, Any]:
    app = facts.apps.get(id)
    own = sum(server.weight for server in backend.servers if server.app_id == id)
    return {
        "id": id,
        "weight": weight,
        "share": round(own / total, 4) if total else 0.0,
        "exists": app is not None,
        "instances": app.instances if app else 0,
        "serving": len(facts.serving.get(id, ())),
    }
