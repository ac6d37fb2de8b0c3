"""Reads of a large cluster in `bench scale`: lists, feeds of the dashboard, and metrics."""

import contextlib
import http.client
import statistics
import time
from collections.abc import Callable, Sequence
from http.client import OK
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.scheduler.daemon import Daemon

_PAGE: Final = 100
ROUNDS: Final = 5
_PIECE: Final = 1 << 20  # bytes


def paths(jobs: int, nodes: int, gpus: int) -> tuple[str, ...]:
    """Return the paths to read: lists and a page from the middle of each, feeds of the dashboard, and metrics.

    Args:
        jobs: Number of jobs of the cluster.
        nodes: Number of nodes of the cluster.
        gpus: Number of GPUs of the cluster.
    """
    page = f"limit={_PAGE}&skip="
    return (
        "/v1/jobs",
        f"/v1/jobs?{page}{_middle(jobs)}",
        "/v1/jobs?search=a1.example&limit=100",
        "/v1/nodes",
        f"/v1/nodes?{page}{_middle(nodes)}",
        "/v1/gpus",
        f"/v1/gpus?{page}{_middle(gpus)}",
        "/v1/gpus?node=a1.example",
        "/v1/tasks?node=a1.example",
        "/v1/queue?limit=100",
        "/v1/status",
        "/v1/cards",
        "/v1/jobs?state=active&order=activity&no_instances=true&limit=8",
        "/metrics/prometheus",
    )


def _middle(count: int) -> int:
    """Return the number of entries before the page in the middle of a list."""
    return max(count - _PAGE, 0) // 2


def measured(
    daemon: "Daemon", asked: Sequence[str], read_s: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Request each path several times, by turns, and return medians by path.

    The figures are `ms` until the last byte, `engine_ms` of processor time on the scheduler's thread, and `kib` of the
    answer.

    Args:
        daemon: Scheduler, which is started.
        asked: Paths of the requests.
        read_s: Function that returns the processor time of reads on the scheduler's thread so far.

    Raises:
        MesosGpuError: An answer has an error.
    """
    from mesos_gpu import __version__
    from mesos_gpu.api.app import create_app
    from mesos_gpu.api.http.server import serve
    from mesos_gpu.api.settings import ApiSettings

    server = serve(create_app(daemon, ApiSettings("http://127.0.0.1", __version__)), "127.0.0.1", 0)
    try:
        rounds = [{path: _asked(server.url, path, read_s) for path in asked} for _ in range(ROUNDS)]
    finally:
        server.stop()
    return {path: _medians([each[path] for each in rounds]) for path in asked}


def _asked(url: str, path: str, read_s: Callable[[], float]) -> dict[str, float]:
    place = urlsplit(url)
    before = read_s()
    with contextlib.closing(
        http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    ) as asked:
        began, size = time.perf_counter(), 0
        asked.request("GET", path)
        answer = asked.getresponse()
        while piece := answer.read(_PIECE):
            size += len(piece)
        took_s = time.perf_counter() - began
    if answer.status != OK or not size:
        raise MesosGpuError(
            f"{path} was answered {answer.status}", remedy="report it: the scheduler is not well"
        )
    return {"ms": took_s * 1000, "engine_ms": (read_s() - before) * 1000, "kib": size / 1024}


def _medians(each: list[dict[str, Any]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in each), 2) for name in each[0]}
