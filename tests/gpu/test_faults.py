"""A tenant whose kernel writes where there is no memory: who dies of it, how soon that is seen, what is left of it."""

import time

from tests.conftest import wait_until
from tests.gpu.sites import CHUNK_MIB, Mps, Record, Site, ready

SHARE_MIB = 4096
ILLEGAL = ("700", "719")  # CUDA_ERROR_ILLEGAL_ADDRESS, …LAUNCH_FAILED


def test_a_fault_of_one_tenant_is_its_own(site: Site, record: Record) -> None:
    one, other = site.task(SHARE_MIB), site.task(SHARE_MIB)
    with one.program() as culprit, other.program() as neighbour:
        rounds = ready(neighbour).ask("gauge(1.0, 0.1)")
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


def test_fault_under_mps_is_recorded_and_ends_with_its_clients(mps: Mps, record: Record) -> None:
    with mps.program() as culprit, mps.program() as neighbour:
        rounds = ready(neighbour).ask("gauge(1.0, 0.1)")
        ready(culprit)
        neighbour.tell(f"(rate({rounds}, {5.0 if mps.is_real else 0.2}), sync())")
        began = time.monotonic()
        answer = culprit.ask("fault()")
        seen_s = time.monotonic() - began
        assert answer != "0"
        fault = {
            "answer": answer,
            "seen after, s": seen_s,
            "neighbour": neighbour.hear(),
            "neighbour afterwards": neighbour.ask("sync()"),
            "servers": {pid: mps.answer(f"get_server_status {pid}") for pid in mps.servers()},
            "logs": {name: mps.log(name) for name in ("control.log", "server.log")},
        }
    record("a fault under MPS", fault)

    def starts() -> bool:
        with mps.program() as fresh:
            return fresh.started == "0" and fresh.ask("load()") == "0"

    wait_until("the card computes again, without a reset", starts)
