"""Metrics of requests: their number, and the time until their answers begin."""

import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http import note

NO_ROUTE: Final = "none"  # refused before routing, or without a route
OTHER_METHOD: Final = "other"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class HttpFigures(Collector):
    """Collector of counts and times of requests by route. {id} stands for ids, so that labels are bounded."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._durations = Histogram(
            "mesos_gpu_http_request_duration_seconds",
            "Time until the answer of a request begins, by its route.",
            ["method", "route"],
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        self._requests = Counter(
            "mesos_gpu_http_requests",
            "Requests that were answered, by the status of the answer.",
            ["method", "code"],
            registry=self._registry,
        )

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of requests, as `prometheus_client` collects them."""
        return self._registry.collect()

    def answered(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request. `route`: as declared; "" if no route was reached."""
        verb = method if method in _METHODS else OTHER_METHOD
        self._durations.labels(verb, route or NO_ROUTE).observe(duration_s)
        self._requests.labels(verb, str(status)).inc()


class Timed:
    """ASGI middleware that times requests; it encloses all others."""

    def __init__(self, app: ASGIApp, figures: HttpFigures) -> None:
        self._app, self._figures = app, figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when its answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                taken_s = time.perf_counter() - begin
                self._figures.answered(scope["method"], note.current().route, message["status"], taken_s)
            await send(message)

        await self._app(scope, receive, answer)
