"""Hanging or hostile agents: their responses cause no further requests, cost little, and delay no other caller."""

import contextlib
import http.client
import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.v1.logs import LOG_BOUNDS
from mesos_gpu.engine import events as ev
from mesos_gpu.model.access.document import AccessDocument, Binding
from tests.conftest import wait_until
from tests.contract.abuse.hostile_agents import QUICK, Hostile
from tests.contract.rig import Rig, by_name, knowing
from tests.doubles.builders import gpu, offer

SEED: Final = 37
MANY: Final = int(os.environ.get("MESOS_GPU_TEST_ANSWERS", "10000"))
DOCUMENT: Final = AccessDocument(bindings=(Binding(("*",), (), ("admin",)),))


def prepared(urls: Mapping[str, str], directory: Path) -> tuple[Rig, dict[str, str]]:
    """Return a scheduler and its jobs: one runs on each agent."""
    rig = Rig(knowing(DOCUMENT), identify=by_name, uploads=UploadStore(directory))
    rig.session.headers["X-Name"] = "ann"

    def offered(name: str, serial: int) -> ev.Event:
        made = offer(f"{name}-{serial}", name, gpus=1)
        return ev.OffersArrived((replace(made, hostname=name, agent_url=urls[name]),))

    for name in urls:
        rig.daemon.put(offered(name, 1))
        rig.report(gpu(f"gpu-{name}"), agent=name)
    for _ in urls:
        rig.submit(gpus=1)
    jobs: dict[str, str] = {}
    for serial in range(2, 100):
        for name in urls.keys() - jobs.keys():
            rig.daemon.put(offered(name, serial))
        tasks = rig.call("GET", "/v1/tasks").json()["tasks"]
        jobs = {task["hostname"]: task["job_id"] for task in tasks if task["job_id"]}
        if len(jobs) == len(urls):
            break
    for task in tasks:
        if task["job_id"]:
            rig.status(task["id"], "TASK_RUNNING", task["agent_id"])
    return rig, jobs


def serve() -> None:
    """Serve in a process of its own, by its arguments, until standard input ends."""
    *urls, directory = sys.argv[1:]
    rig, jobs = prepared(dict(each.split("=", 1) for each in urls), Path(directory))
    print(json.dumps({"port": rig.server.port, "jobs": jobs}), flush=True)
    sys.stdin.read()
    rig.close()


@dataclass
class Scheduler:
    """A REST interface whose jobs each run on a different agent. `pid`: of its process."""

    pid: int
    port: int
    jobs: dict[str, str]

    def get(self, path: str, name: str = "ann", timeout_s: float = 60.0) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"X-Name": name})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def logs(self, host: str, name: str = "ann", timeout_s: float = 60.0) -> tuple[int, bytes]:
        return self.get(f"/v1/jobs/{self.jobs[host]}/logs?offset=0", name, timeout_s)

    def memory_mib(self, what: str) -> float:
        """`what`: VmRSS, or VmHWM: the most since `forget_most`."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:"))

    def forget_most(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@contextmanager
def scheduler_of(agents: dict[str, Hostile], directory: Path, *, apart: bool = False) -> Iterator[Scheduler]:
    """Start a scheduler. `apart`: in a process of its own."""
    urls = {name: agent.url for name, agent in agents.items()}
    if not apart:
        rig, jobs = prepared(urls, directory)
        with contextlib.closing(rig):
            assert jobs.keys() == agents.keys()
            yield Scheduler(os.getpid(), rig.server.port, jobs)
        return
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    with subprocess.Popen(
        [*command, *(f"{name}={url}" for name, url in urls.items()), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["jobs"].keys() == agents.keys()
        yield Scheduler(process.pid, ready["port"], ready["jobs"])
        process.stdin.close()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scheduler wait for agents for an hour, so that a test does not depend on the end of that time."""
    monkeypatch.setattr("mesos_gpu.api.v1.jobs.LOG_BOUNDS", replace(LOG_BOUNDS, seconds=3600))


#: Program that sends requests to two schedulers in turn, and at the end prints the time of each answer.
MEASURE: Final = """
import http.client, json, sys, threading, time
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
took = [[], []]
while not over.is_set() or len(took[0]) < 100:
    for path in sys.argv[3:]:
        for port, times in zip(sys.argv[1:3], took):
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            begin = time.monotonic()
            connection.request("GET", path, headers={"X-Name": "victor"})
            answer = connection.getresponse()
            answer.read()
            times.append(time.monotonic() - begin)
            connection.close()
            assert answer.status == 200, (path, answer.status)
    time.sleep(0.02)
print(json.dumps(took))
"""
OTHERS: Final = ("/metrics/prometheus", "/metrics", "/v1/services", "/v1/health", "/v1/uploads", "/v1/status")


def others(scheduler: Scheduler, name: str = "victor") -> list[tuple[float, str]]:
    """Return the times of other requests."""
    took = []
    for path in (*OTHERS, f"/v1/jobs/{scheduler.jobs['honest']}/logs?offset=0"):
        begin = time.monotonic()
        status, body = scheduler.get(path, name)
        took.append((time.monotonic() - begin, path))
        assert status == 200, (path, body)
    return took


def sound(host: str, status: int, body: bytes) -> None:
    """An answer of the scheduler about a hostile agent: output, or an error that names host and remedy."""
    assert b"CANARY" not in body
    if status == 200:
        assert len(body) < 8 << 20
        return
    error = json.loads(body)["error"]
    assert (status, error["code"]) in {
        (503, "unavailable"),
        (404, "not-found"),
        (429, "busy"),
        (409, "not-started"),
    }, error
    assert error["remedy"]
    assert status in (409, 429) or host in error["message"], error


@contextmanager
def both(
    directory: Path, kinds: tuple[str, ...], *, apart: bool = False
) -> Iterator[tuple[Hostile, Scheduler]]:
    """A hostile agent with a job, and the scheduler of that agent and of an honest one."""
    with Hostile(SEED, kinds) as hostile, Hostile(1, ("good",)) as honest:
        agents = {"hostile": hostile, "honest": honest}
        with scheduler_of(agents, directory, apart=apart) as scheduler:
            yield hostile, scheduler


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)], ids=["here", "apart"])
def test_answers_of_an_agent_lead_nowhere_and_cost_little(tmp_path: Path, apart: bool) -> None:
    """Memory is that of the scheduler alone where it is apart."""
    with both(tmp_path, QUICK, apart=apart) as (hostile, scheduler):
        scheduler.logs("honest")
        if apart:
            scheduler.forget_most()
        before_mib = scheduler.memory_mib("VmRSS")
        for number in range(200):
            sound("hostile", *scheduler.logs("hostile", f"user{number % 7}"))
            if not apart and hostile.answers.keys() == set(QUICK):
                break
        assert hostile.answers.keys() == set(QUICK), "each kind was answered"
        assert hostile.trapped == 0, "the scheduler asked what an agent named"
        assert not apart or scheduler.memory_mib("VmHWM") - before_mib < 100
        assert others(scheduler)


@pytest.mark.usefixtures("patience")
def test_agent_that_hangs_delays_no_other_request(tmp_path: Path) -> None:
    with both(tmp_path, ("hang", "drip")) as (hostile, scheduler):
        with ThreadPoolExecutor(60) as clients:
            asked = [clients.submit(scheduler.logs, "hostile", f"user{n % 15}") for n in range(60)]
            wait_until("who is too many is refused", lambda: sum(map(Future.done, asked)) == 52)
            assert others(scheduler), "they are answered while eight threads wait"
            assert sum(map(Future.done, asked)) == 52
            hostile.end()
        assert Counter(each.result()[0] for each in asked) == {429: 52, 503: 8}
        for each in asked:
            sound("hostile", *each.result())


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("path", ["logs?offset=0", "logs?offset=-5&times=true"])
def test_a_thread_is_freed_when_its_client_has_gone(tmp_path: Path, path: str) -> None:
    with both(tmp_path, ("hang",)) as (hostile, scheduler):
        for _ in range(3):
            with contextlib.ExitStack() as clients:
                for _ in range(4):
                    wait_until("there is room", lambda: is_admitted(hostile, scheduler, path, clients))
                assert scheduler.logs("hostile")[0] == 429


def is_admitted(hostile: Hostile, scheduler: Scheduler, path: str, clients: contextlib.ExitStack) -> bool:
    """Send one more request; return whether the agent receives it. Its connection stays open in `clients`."""
    begun = hostile.answers.total()
    client = http.client.HTTPConnection("127.0.0.1", scheduler.port, timeout=30)
    clients.callback(client.close)
    client.request("GET", f"/v1/jobs/{scheduler.jobs['hostile']}/{path}", headers={"X-Name": "ann"})
    while hostile.answers.total() == begun:
        if select.select([client.sock], [], [], 0.02)[0]:
            client.close()
            return False
    return True


def storm(scheduler: Scheduler, agents: dict[str, Hostile], many: int) -> None:
    """Let 8 callers read from random hostile agents until these have sent a number of responses."""

    def read(number: int) -> None:
        chance, name = random.Random(number), f"user{number}"
        while sum(agent.answers.total() for agent in agents.values()) < many:
            host = chance.choice(list(agents))
            try:
                if chance.random() < 0.1:
                    scheduler.logs(host, name, chance.uniform(0.05, 0.5))
                else:
                    sound(host, *scheduler.logs(host, name))
            except TimeoutError:
                continue  # the client has disconnected before the answer

    with ThreadPoolExecutor(8) as clients:
        for each in [clients.submit(read, number) for number in range(8)]:
            each.result()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_answers_of_hostile_agents_take_no_memory_and_delay_no_other_request(
    tmp_path: Path,
) -> None:
    """The delay of other callers is compared with that at a second scheduler, whose agents are honest."""
    kinds = (*QUICK * 12, "drip", "hang")
    with contextlib.ExitStack() as held:
        hostile = {f"hostile{n}": held.enter_context(Hostile(SEED + n, kinds, hang_s=30.0)) for n in range(6)}
        honest = held.enter_context(Hostile(1, ("good",)))
        agents = {**hostile, "honest": honest}
        scheduler = held.enter_context(scheduler_of(agents, tmp_path / "one", apart=True))
        quiet = held.enter_context(scheduler_of({"honest": honest}, tmp_path / "two", apart=True))
        storm(scheduler, hostile, MANY // 10)
        before_mib = scheduler.memory_mib("VmRSS")
        scheduler.forget_most()
        measure = [sys.executable, "-c", MEASURE, str(scheduler.port), str(quiet.port), *OTHERS]
        with subprocess.Popen(measure, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as measuring:
            storm(scheduler, hostile, MANY)
            took, beside = (sorted(times) for times in json.loads(measuring.communicate()[0]))
        p99, p99_beside = (times[int(len(times) * 0.99)] for times in (took, beside))
        grown_mib = scheduler.memory_mib("VmRSS") - before_mib, scheduler.memory_mib("VmHWM") - before_mib
        answers = sum((agent.answers for agent in hostile.values()), Counter[str]())
        print(f"{answers=} {len(took)=} {p99=:.3f} s {p99_beside=:.3f} s {grown_mib=}")
        assert sum(agent.trapped for agent in hostile.values()) == 0
        assert answers.keys() == set(kinds)
        assert p99 < max(0.2, 3 * p99_beside)
        assert grown_mib[0] < 64
        assert grown_mib[1] < 192
