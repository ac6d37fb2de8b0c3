"""`python -m bench api`: requests to the interface of Marathon, on a scheduler with a simulated cluster."""

import math
import multiprocessing as mp
import selectors
import socket
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import requests

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local.processes import poll

AGENTS: Final = 50
RATE: Final = 20  # requests a second, of the mix
_CLIENTS: Final = 16  # threads that send requests
_REPEATS: Final = 20
_RUNS: Final = 5
_APP: Final = {"cmd": "sleep 1000", "cpus": 0.1, "mem": 32}
#: Routes of twenty requests.
_MIX: Final = (
    *("GET /v2/apps/{id}",) * 6,
    *("GET /v2/apps?embed",) * 3,
    *("PUT /v2/apps/{id}",) * 2,
    *("GET /v2/deployments",) * 4,
    *("GET /v2/queue",) * 2,
    *("GET /v2/tasks",) * 1,
    *("GET /v1/jobs",) * 2,
)
_PATHS: Final = {
    "GET /v2/apps?embed": "/v2/apps?embed=apps.counts&embed=apps.tasks",
    "GET /v2/deployments": "/v2/deployments",
    "GET /v2/queue": "/v2/queue",
    "GET /v2/tasks": "/v2/tasks",
    "GET /v1/jobs": "/v1/jobs?limit=100",
}


@click.command()
@click.option("--apps", default=100, show_default=True, type=click.IntRange(1), help="Apps, one POST each.")
@click.option(
    "--instances", default=10, show_default=True, type=click.IntRange(1), help="Instances of each app."
)
@click.option(
    "--seconds", default=30, show_default=True, type=click.IntRange(1), help="Duration of mixed requests."
)
@click.option(
    "--many", default=1000, show_default=True, type=click.IntRange(1), help="Apps in one large answer."
)
@click.option(
    "--listeners", default=50, show_default=True, type=click.IntRange(1), help="Listeners to events."
)
@json_option
def api(apps: int, instances: int, seconds: int, many: int, listeners: int, as_json: bool) -> None:
    """Create, scale and delete apps; send 20 requests/s; list many apps; launch while others listen.

    Everything but Mesos is real: the HTTP server, the scheduler, its state on disk. Tasks run at once when launched.
    """
    figures: dict[str, object] = {"apps": apps, "instances": instances}
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top, _scheduler(Path(top)) as asker:
        output.note(f"{apps} apps with {instances} instances each")
        figures |= _create(asker, apps, instances)
        output.note(f"{RATE} requests/s for {seconds} s, {apps * instances} tasks")
        _mixed(asker, apps, instances, RATE * seconds)
        figures |= _change(asker, apps, instances)
        output.note(f"{many} apps")
        figures |= _large(asker, many)
        output.note(f"{apps * instances} launches, alone and while {listeners} listen")
        figures |= _launches(asker, apps * instances, listeners)
    if as_json:
        output.document({**figures, "routes": asker.routes})
        return
    output.table(("FIGURE", "VALUE"), list(figures.items()), empty="")
    output.line("")
    heads = ("DURING", "ROUTE", "TIMES", "P50 MS", "P95 MS", "P99 MS")
    output.table(heads, [tuple(route.values()) for route in asker.routes], empty="")


# --- the scheduler, in a process of its own


@contextmanager
def serving(serve: Callable[..., None], *given: Any) -> Iterator[Connection]:
    """Run a scheduler in a process of its own until the end of the block, so that clients take none of its time.

    Args:
        serve: Function of a module. It gets `given` and one end of a pipe, and returns after the message "stop".
        given: Further arguments, which can be pickled.

    Yields:
        The other end of the pipe.

    Raises:
        MesosGpuError: The process ended before it has sent an awaited message.
    """
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=serve, args=(*given, there))
    child.start()
    there.close()
    try:
        yield here
        here.send("stop")
        child.join(30)
    except EOFError as error:
        raise MesosGpuError("the scheduler did not start", remedy="see its output above") from error
    finally:
        child.kill()
        child.join()
        here.close()


@contextmanager
def _scheduler(top: Path) -> Iterator["_Asker"]:
    with serving(_serve, top / "state") as pipe:
        asker = _Asker(pipe.recv(), pipe)
        yield asker
        asker.close()


def _serve(state: Path, pipe: Connection) -> None:
    """Serve until a message other than "launched" comes, which is answered with the number of launches."""
    from mesos_gpu import __version__
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.adapters.sqlite_store import SqliteStore
    from mesos_gpu.api.app import create_app
    from mesos_gpu.api.http.server import serve
    from mesos_gpu.api.settings import ApiSettings
    from mesos_gpu.engine import events as ev
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.ready_cluster import ReadyCluster

    clock, store = SystemClock(), SqliteStore(state)

    def put(event: ev.Event) -> None:
        daemon.put(event)

    cluster = ReadyCluster(AGENTS, put, clock.now)
    daemon = Daemon(store, store.load(), cluster, clock, Settings.of("executor", "monitor"))
    server = serve(create_app(daemon, ApiSettings("http://127.0.0.1", __version__)), "127.0.0.1", 0)
    daemon.start()
    pipe.send(server.url)
    while pipe.recv() == "launched":
        pipe.send(cluster.launched)
    server.stop()
    daemon.stop()


@dataclass
class _Asker:
    """A client that records the time of each answer, by route."""

    url: str
    pipe: Connection
    took_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    routes: list[dict[str, object]] = field(default_factory=list)
    _local: threading.local = field(default_factory=threading.local)
    _sessions: list[requests.Session] = field(default_factory=list)

    def ask(self, route: str, path: str, since: float | None = None, **more: Any) -> Any:
        """Send a request and return the JSON of the answer.

        Args:
            route: Verb, and the name under which the time is recorded.
            path: Path and query.
            since: Time from which the answer counts, if the request was due earlier.
            more: Further arguments of `requests`.

        Raises:
            MesosGpuError: The answer has an error.
        """
        began = time.perf_counter() if since is None else since
        answer = self._session().request(route.split(" ")[0], self.url + path, timeout=60, **more)
        self.took_ms[route].append((time.perf_counter() - began) * 1000)
        if not answer.ok:
            what = f"{route}: {answer.status_code} {answer.text[:200]}"
            raise MesosGpuError(what, remedy="report it: the scheduler is not well")
        return answer.json()

    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.trust_env = False
            self._sessions.append(self._local.session)
        session: requests.Session = self._local.session
        return session

    def launched(self) -> int:
        """Return the number of launches so far."""
        self.pipe.send("launched")
        return int(self.pipe.recv())

    def note(self, during: str) -> None:
        """Add percentiles of each route for the requests since the last call."""
        for route, took in sorted(self.took_ms.items()):
            self.routes.append({"during": during, "route": route, "times": len(took), **_percentiles(took)})
        self.took_ms.clear()

    def close(self) -> None:
        """Close all connections."""
        for session in self._sessions:
            session.close()


def _percentiles(took_ms: list[float]) -> Mapping[str, float]:
    ordered = sorted(took_ms)
    return {f"p{n}_ms": round(ordered[math.ceil(len(ordered) * n / 100) - 1], 1) for n in (50, 95, 99)}


# --- measurements


def _settled(asker: _Asker) -> None:
    """Wait until no deployment is under way."""
    poll("the deployments end", lambda: not asker.ask("GET deployments", "/v2/deployments"), 120)
    asker.took_ms.pop("GET deployments")


def _create(asker: _Asker, apps: int, instances: int) -> dict[str, object]:
    began = time.perf_counter()
    for n in range(apps):
        asker.ask("POST /v2/apps", "/v2/apps", json={"id": f"/bench/a{n}", **_APP, "instances": instances})
    _settled(asker)
    asker.note("create")
    return {"create_s": round(time.perf_counter() - began, 1)}


def _change(asker: _Asker, apps: int, instances: int) -> dict[str, object]:
    changes: Mapping[str, Callable[[str], object]] = {
        "scale": lambda path: asker.ask("PUT /v2/apps/{id}", path, json={"instances": instances * 2}),
        "delete": lambda path: asker.ask("DELETE /v2/apps/{id}", path),
    }
    result: dict[str, object] = {}
    for name, change in changes.items():
        began = time.perf_counter()
        for n in range(apps):
            change(f"/v2/apps/bench/a{n}")
        _settled(asker)
        result[f"{name}_s"] = round(time.perf_counter() - began, 1)
        asker.note(name)
    return result


def _mixed(asker: _Asker, apps: int, instances: int, count: int) -> None:
    """Send mixed requests, each at its time, even if earlier ones are not answered yet."""
    began = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        asked = []
        for n, route in enumerate(islice(cycle(_spread(_MIX)), count)):
            due = began + n / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            asked.append(pool.submit(_mix_one, asker, route, n % apps, instances + n // len(_MIX) % 2, due))
        for each in asked:
            each.result()
    asker.note("mix")
    _settled(asker)


def _mix_one(asker: _Asker, route: str, app: int, instances: int, due: float) -> None:
    path = _PATHS.get(route, f"/v2/apps/bench/a{app}")
    if route.startswith("PUT"):
        asker.ask(route, path + "?force=true", since=due, json={"instances": instances})
    else:
        asker.ask(route, path, since=due)


def _spread(mix: Sequence[str]) -> list[str]:
    """Reorder requests so that those of a kind do not follow each other."""
    return [mix[n * 7 % len(mix)] for n in range(len(mix))]


def _large(asker: _Asker, many: int) -> dict[str, object]:
    began = time.perf_counter()
    apps = [{"id": f"l{n}", **_APP} for n in range(many)]
    asker.ask("PUT /v2/groups/{id}", "/v2/groups/large", json={"apps": apps})
    _settled(asker)
    took_s = time.perf_counter() - began
    for _ in range(_REPEATS):
        asker.ask("GET /v2/apps", "/v2/apps")
        asker.ask("GET /v2/apps?embed", _PATHS["GET /v2/apps?embed"])
        asker.ask("GET /v2/groups", "/v2/groups")
    asker.note(f"{many} apps")
    asker.ask("DELETE group", "/v2/groups/large?force=true")
    _settled(asker)
    asker.took_ms.clear()
    return {"large_group_s": round(took_s, 1)}


def _launches(asker: _Asker, tasks: int, listeners: int) -> dict[str, object]:
    """Measure launches with and without listeners, by turns, as the speed of the machine may vary."""
    alone, heard = [], []
    for _ in range(_RUNS):
        alone.append(_launch(asker, tasks))
        with _listening(asker.url, listeners) as came:
            heard.append(_launch(asker, tasks))
    return {
        "launches_per_s": round(statistics.median(alone)),
        f"launches_per_s_{listeners}_listeners": round(statistics.median(heard)),
        "events_mib_per_listener": round(came() / listeners / 2**20, 2),
    }


def _launch(asker: _Asker, tasks: int) -> float:
    """Return the launches per second of one app, which is deleted afterwards."""
    before, began = asker.launched(), time.perf_counter()
    asker.ask("POST app", "/v2/apps", json={"id": "/burst", **_APP, "instances": tasks})
    poll("all are launched", lambda: asker.launched() - before >= tasks, 120)
    rate = tasks / (time.perf_counter() - began)
    _settled(asker)
    asker.ask("DELETE app", "/v2/apps/burst")
    _settled(asker)
    asker.took_ms.clear()
    return rate


@contextmanager
def _listening(url: str, count: int) -> Iterator[Callable[[], int]]:
    """Open connections to /v2/events; yield a function that returns the bytes received so far."""
    address, came = (urlsplit(url).hostname or "", urlsplit(url).port or 80), [0]
    ask = f"GET /v2/events HTTP/1.1\r\nHost: {address[0]}\r\nAccept: text/event-stream\r\n\r\n".encode()
    stop, told = socket.socketpair()
    connections = [socket.create_connection(address) for _ in range(count)]
    selector = selectors.DefaultSelector()

    def read() -> None:
        while True:
            for key, _ in selector.select():
                if key.fileobj is told:
                    return
                came[0] += len(key.data.recv(1 << 18))

    selector.register(told, selectors.EVENT_READ)
    for each in connections:
        selector.register(each, selectors.EVENT_READ, each)
        each.sendall(ask)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lambda: came[0]
    finally:
        stop.send(b".")
        reader.join()
        selector.close()
        for each in (*connections, stop, told):
            each.close()
