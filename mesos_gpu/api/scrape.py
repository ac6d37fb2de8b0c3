"""Routes that Prometheus reads: metrics, and targets for service discovery."""

import re
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer, pieces_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.metrics import marathon
from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.api.metrics.hooks import HookFigures
from mesos_gpu.api.metrics.peers import PeerFigures
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.apps import serving_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import Server
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.export import dropwizard, prometheus

PAGE: Final = "/metrics/prometheus"
_NOT_IN_LABELS: Final = re.compile("[^a-zA-Z0-9_]")


class Scrape:
    """HTTP handlers of metrics and of scrape targets."""

    def __init__(self, scheduler: SchedulerApi, settings: ApiSettings) -> None:
        # A registry of its own keeps metrics of other libraries out.
        self._scheduler, self._settings, self._began_at = scheduler, settings, time.monotonic()
        self._registry, self._texts = CollectorRegistry(), prometheus.Texts()
        for collector in (scheduler.meter, settings.figures):
            self._registry.register(collector)
        if settings.hooks is not None:
            self._registry.register(HookFigures(settings.hooks))
        if settings.peers is not None:
            self._registry.register(PeerFigures(settings.peers))
        ProcessCollector(registry=self._registry)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: JSON with Marathon's names, or text if the client asks for it, as Prometheus does."""
        if prometheus.asks_for_text(request.headers.get("accept", "")):
            return await self.prometheus(request)
        measured, counts = await result_of(
            self._scheduler.read_copy(lambda view: (snapshot(view), marathon.counts(view)))
        )

        def rendered() -> dict[str, Any]:
            uptime_s = time.monotonic() - self._began_at
            return dropwizard.render(
                chain(marathon.metrics(counts, self._scheduler.meter, uptime_s), metrics(measured))
            )

        return json_answer(await run_in_threadpool(rendered))

    async def prometheus(self, _request: Request) -> Response:
        """GET /metrics/prometheus: metrics in the text format of Prometheus."""
        measured = await result_of(self._scheduler.read_copy(snapshot))
        # Before the first byte is sent, as it may fail.
        own = await run_in_threadpool(generate_latest, self._registry)
        pages = prometheus.rendered(metrics(measured), self._texts)
        return await pieces_answer(chain(pages, [own.decode()]), prometheus.CONTENT_TYPE)

    async def targets(self, request: Request) -> Response:
        """GET /v1/sd: scrape targets in the form of Prometheus' http_sd_configs."""
        sight = AppSight.of(request)
        groups = await result_of(self._scheduler.read_copy(lambda view: list(_app_targets(view, sight))))
        return json_answer([_scheduler_target(self._settings.webui_url), *groups])


def _scheduler_target(url: str) -> dict[str, Any]:
    split = urlsplit(url)
    return {
        "targets": [split.netloc],
        "labels": {
            "__meta_mesos_gpu_role": "scheduler",
            "__metrics_path__": split.path.rstrip("/") + PAGE,
            "__scheme__": split.scheme,
        },
    }


def _app_targets(view: View, sight: AppSight) -> Iterator[dict[str, Any]]:
    for app in view.catalog.root.all_apps():
        if sight.sees(app):
            shown = sight.shown(app)
            for task in serving_tasks(view, app.id):
                yield from _task_targets(shown, task)


def _task_targets(app: App, task: Task) -> Iterator[dict[str, Any]]:
    """Yield a scrape target for each port of a task at which the task is proved to listen."""
    host = urlsplit(task.agent_url).hostname or task.hostname
    labels = {
        "__meta_mesos_gpu_role": "app",
        "__meta_mesos_gpu_app": app.id,
        "__meta_mesos_gpu_task": str(task.id),
        "__meta_mesos_gpu_hostname": task.hostname,
        **{
            f"__meta_mesos_gpu_label_{_NOT_IN_LABELS.sub('_', key)}": value
            for key, value in app.labels.items()
        },
    }
    for index, port in enumerate(task.proved_ports):
        server = Server(task.id, app.id, host, port, 1)
        if server.problem:
            continue
        name = app.ports[index].name if index < len(app.ports) else None
        yield {
            "targets": [server.place],
            "labels": labels
            | {"__meta_mesos_gpu_port_index": str(index), "__meta_mesos_gpu_port_name": name or ""},
        }
