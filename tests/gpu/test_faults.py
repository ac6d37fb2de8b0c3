"""A tenant whose kernel writes where there is no memory: who dies of it, how soon that is seen, what is left of it."""

import subprocess
import time
from collections.abc import Mapping

import pytest

from mesos_gpu.model.nodes.gpu import Gpu
from tests.conftest import wait_until
from tests.cuda import Program
from tests.gpu.conftest import asked_of_mps
from tests.gpu.sites import CHUNK_MIB, Record, Site, ready

SHARE_MIB = 4096
ILLEGAL = ("700", "719")  # CUDA_ERROR_ILLEGAL_ADDRESS, …LAUNCH_FAILED


def test_a_fault_of_one_tenant_is_its_own(site: Site, record: Record) -> None:
    one, other = site.task(SHARE_MIB), site.task(SHARE_MIB)
    with one.program() as culprit, other.program() as neighbour:
        rounds = ready(neighbour).ask("gauge(1.0)")
        assert ready(culprit).ask(f"allocs({CHUNK_MIB}, 8)") == "8"
        neighbour.tell(f"rate({rounds}, {site.time_s(5.0)})")
        began = time.monotonic()
        answer = culprit.ask("fault()")
        seen_s = time.monotonic() - began
        assert answer in ILLEGAL
        assert float(neighbour.hear()) > 0, "it computed on"
        assert neighbour.ask(f"[alloc({CHUNK_MIB}), sync()]") == "[0, 0]"
        assert culprit.ask("burn(1)") == answer, "it is broken for good"
    record("a fault", {"answer": answer, "seen after, s": seen_s})
    with one.program() as next_of_it:
        free_mib = eval(ready(next_of_it).ask("info()"))[1]
        assert free_mib >= SHARE_MIB - 1024, "what the dead one had is given back; a context takes the rest"


@pytest.mark.gpu
def test_what_a_fault_does_under_mps_is_recorded_and_is_over_when_its_clients_are(
    card: Gpu, mps: Mapping[str, str], record: Record
) -> None:
    with Program(mps, "gpa") as culprit, Program(mps, "gpa") as neighbour:
        rounds = ready(neighbour).ask("gauge(1.0)")
        ready(culprit)
        neighbour.tell(f"(rate({rounds}, 5.0), sync())")
        began = time.monotonic()
        answer = culprit.ask("fault()")
        seen_s = time.monotonic() - began
        assert answer in ILLEGAL or answer != "0"
        servers = asked_of_mps(mps, "get_server_list").split()
        fault = {
            "answer": answer,
            "seen after, s": seen_s,
            "neighbour": neighbour.hear(),
            "neighbour afterwards": neighbour.ask("sync()"),
            "servers": {pid: asked_of_mps(mps, f"get_server_status {pid}") for pid in servers},
        }
    logs = ["control.log", "server.log"]
    texts = {name: tail(f"{mps['CUDA_MPS_LOG_DIRECTORY']}/{name}") for name in logs}
    record("a fault under MPS", {**fault, "logs": texts})

    def starts() -> bool:
        with Program(mps, "gpa") as fresh:
            return fresh.started == "0" and fresh.ask("load()") == "0"

    wait_until("the card computes again, without a reset", starts)


def tail(path: str) -> str:
    """The end of a log."""
    return subprocess.run(["tail", "-n", "30", path], capture_output=True, text=True, check=False).stdout
