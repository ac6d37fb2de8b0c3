"""A share's compute grows while its task computes: kernels in a second follow."""

import time

from mesos_gpu.policy.sharing.windows import PERIOD_US, Window
from tests.gpu.sites import Record, Site, ready

KERNEL_MS = 1.0
BEFORE_S, AFTER_S, FOLLOWS_S = 4.0, 6.0, 2.0
OFF_MOST = 0.05


def test_compute_grows_from_a_quarter_to_three(site: Site, record: Record) -> None:
    with site.task(site.whole_mib).program() as alone:
        rounds = int(ready(alone).ask(f"gauge({KERNEL_MS}, {site.time_s(2.0)})"))
        whole = float(alone.ask(f"rate({rounds}, {site.time_s(5.0)})"))
    task = site.task(site.whole_mib // 2, Window(0, PERIOD_US // 4))
    with task.program() as program:
        ready(program)
        began = time.monotonic()
        program.tell(f"rates({rounds}, {site.time_s(BEFORE_S + AFTER_S)}, {site.time_s(0.5)})")
        time.sleep(max(0.0, began + site.time_s(BEFORE_S) - time.monotonic()))
        task.region.change(site.card.id, window=Window(0, PERIOD_US * 3 // 4))
        changed = time.monotonic()
        parts = [(end - changed, rate / whole) for end, rate in eval(program.hear())]
    before = [part for at, part in parts if at <= 0]
    after = [part for at, part in parts if at >= site.time_s(FOLLOWS_S)]
    record("from 25 to 75 %", {"kernels in a second alone": whole, "seconds since, part": parts})
    assert before
    assert after
    mean_before, mean_after = sum(before) / len(before), sum(after) / len(after)
    assert mean_after > mean_before
    if site.is_real:
        assert abs(mean_before - 0.25) <= OFF_MOST
        assert all(abs(part - 0.75) <= 2 * OFF_MOST for part in after), "within two seconds, and so it stays"
        assert abs(mean_after - 0.75) <= OFF_MOST
