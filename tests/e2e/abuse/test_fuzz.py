"""Random malformed requests to a real scheduler of a real master: no defects, and other callers are answered."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import requests

from mesos_gpu.local.stack import SchedulerProcess, Stack
from tests.contract.abuse.test_slow import percentile
from tests.e2e.abuse.sending import fuzzing, sender_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SEED: Final = int(os.environ.get("FUZZ_SEED", "7"))
BOUND_MS: Final = 200.0
ALONE_S: Final = 2.0  # requests of the other caller alone, before each round
MAX_MIB: Final = 64  # allowed growth of memory, with a full state


@pytest.fixture(scope="module")
def scheduler(open_directory: Path) -> Iterator[SchedulerProcess]:
    """A scheduler of a cluster without agents, so that jobs are stored and never run."""
    bounds = ["--user-pending", "200", "--queue-pending", "400", "--user-stored", "16"]
    with Stack(open_directory / "stack", [], scheduler_arguments=bounds) as stack:
        yield stack.scheduler


class Beside(threading.Thread):
    """Another caller, with requests on one connection and on new ones.

    Attributes:
        took_ms: Time of each answer, in milliseconds.
    """

    def __init__(self, url: str, *paths: str) -> None:
        super().__init__(name="beside")
        self._url, self._over, self.took_ms = url, threading.Event(), list[float]()
        self._paths, self._kept = paths or ("/v1/health", "/v1/jobs?limit=1"), requests.Session()
        self._kept.trust_env = False

    def run(self) -> None:
        while not self._over.is_set():
            self.ask_once()

    def ask_once(self) -> None:
        """Request each path on the kept connection and on a new one."""
        for path in self._paths:
            self._ask(self._kept, path)
        with requests.Session() as new:
            new.trust_env = False
            self._ask(new, self._paths[0])
        self._over.wait(0.02)

    def _ask(self, session: requests.Session, path: str) -> None:
        began = time.perf_counter()
        assert session.get(self._url + path, timeout=60).status_code == 200
        self.took_ms.append((time.perf_counter() - began) * 1000)

    def end(self) -> None:
        """Stop."""
        self._over.set()
        self.join()


@contextmanager
def beside(url: str, took_ms: list[float]) -> Iterator[None]:
    """Run another caller during the block, and add its times."""
    caller = Beside(url)
    caller.start()
    try:
        yield
    finally:
        caller.end()
    took_ms += caller.took_ms


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def fuzz(
    scheduler: SchedulerProcess, counts: list[int], seed: int
) -> tuple[list[float], list[float], Counter[str]]:
    """Send requests in rounds; return the other caller's times without and with them, and all statuses."""
    before, took, rss = list[float](), list[float](), list[float]()
    with fuzzing(scheduler.port, seed) as pipe:
        for count in counts:
            with beside(scheduler.url, before):
                time.sleep(ALONE_S)
            with beside(scheduler.url, took):
                pipe.send(count)
                sent, statuses, defects = pipe.recv()
            assert not defects, "\n".join(defects[:5])
            rss.append(rss_mib(scheduler.pid))
    before.sort()
    took.sort()
    print(
        f"\n{sent} requests, answered: {dict(sorted(statuses.items()))}\nRSS {', '.join(f'{r:.0f}' for r in rss)} MiB"
    )
    for name, each in (("alone", before), ("beside", took)):
        print(
            f"another caller, {name}: "
            + ", ".join(f"p{n} {percentile(each, n):.1f} ms" for n in (50, 95, 99))
        )
    assert max(rss[1:], default=0) - rss[0] < MAX_MIB
    runs_without_defect(scheduler)
    return before, took, statuses


def runs_without_defect(scheduler: SchedulerProcess) -> None:
    log = scheduler.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
    assert scheduler.running


def test_malformed_requests_are_no_defects(scheduler: SchedulerProcess) -> None:
    sender = sender_of(scheduler.port, SEED)
    sender.send(400)
    assert not sender.defects, "\n".join(sender.defects[:5])
    assert sender.statuses["400"] > 20
    assert sender.statuses["200"] + sender.statuses["201"] > 5
    runs_without_defect(scheduler)


@pytest.mark.long
def test_malformed_requests_delay_no_other_caller(scheduler: SchedulerProcess) -> None:
    before, took, statuses = fuzz(scheduler, [600], SEED)
    assert statuses["400"] > 50
    assert statuses["200"] + statuses["201"] > 20
    assert percentile(took, 95) < max(BOUND_MS, 5 * percentile(before, 95))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_memory_and_other_callers_are_as_before_after_100_000_malformed_requests(
    scheduler: SchedulerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        before, took, statuses = fuzz(scheduler, [10_000] * 10, SEED)
    assert statuses.total() >= 60_000
    assert percentile(took, 99) < max(BOUND_MS, 5 * percentile(before, 99))
