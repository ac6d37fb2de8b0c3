"""Time at work as the monitor counts it: short kernels between looks, and a process that only holds memory."""

import time
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger, Owner
from isolator.node.use import Counts
from mesos_gpu.model.nodes.gpu_use import TaskUse
from tests.cuda import Program
from tests.gpu.sites import Record, Site, ready

KERNEL_MS, EVERY_S, LOOK_S, TIMES = 50, 20.0, 5.0, 6
HELD_MIB = 512


def looks(site: Site, counts: Counts, program: Program, rounds: int) -> TaskUse:
    """Run a kernel of so many rounds each 20 s, none if there are none, and look on; what was counted at last."""
    every_s, began = site.time_s(EVERY_S), time.monotonic()
    for number in range(TIMES if site.is_real else 1):
        if rounds:
            program.ask(f"step({rounds}, 1)")
        while time.monotonic() < began + (number + 1) * every_s:
            time.sleep(site.time_s(LOOK_S))
            (use,) = counts.look([site.read()])[1]
    return use


@pytest.mark.timeout(600)
def test_short_kernels_are_counted_and_memory_alone_is_no_work(
    site: Site, record: Record, tmp_path: Path
) -> None:
    with site.bare() as program:
        rounds = int(ready(program).ask(f"gauge({KERNEL_MS}, {site.time_s(2.0)})"))
        assert program.ask(f"alloc({HELD_MIB})") == "0"
        ledger = Ledger(tmp_path / "ledger.sqlite")
        ledger.claim("ann.1", [site.card.id], Owner.of(program.pid))
        first = looks(site, Counts(ledger), program, 0)
        second = looks(site, Counts(ledger), program, rounds)
    record(
        "time at work",
        {
            name: {"seen, ms": use.work and use.work.seen_ms, "busy, ms": use.work and use.work.busy_ms}
            for name, use in (("holds memory", first), ("50 ms each 20 s", second))
        },
    )
    if not site.is_real:
        return
    if first.work is None or second.work is None:
        pytest.skip("the driver keeps no samples of this card")
    assert first.work.busy_ms == 0
    assert first.work.seen_ms > TIMES * EVERY_S * 1000 * 0.9
    assert second.work.busy_ms == pytest.approx(TIMES * KERNEL_MS, rel=0.2)
