"""Two tenants of a card: each gets what it is granted by windows; by MPS, both together as much as without."""

import contextlib

import pytest

from mesos_gpu.model.ids import TaskId
from mesos_gpu.policy.sharing.percentages import cap_of
from mesos_gpu.policy.sharing.windows import Tenant, plan
from tests.cuda import Program
from tests.gpu.sites import Mps, Record, Site, ready

KERNEL_MS = 1.0
LONG_S = 10.0
OFF_MOST, SUM_LEAST = 0.05, 0.93
OF_PLAIN_MPS_LEAST = 0.97


def rates(programs: list[Program], rounds: int, long_s: float) -> list[float]:
    """Kernels in a second of each, at the same time."""
    for program in programs:
        program.tell(f"rate({rounds}, {long_s})")
    return [float(program.hear()) for program in programs]


@pytest.mark.parametrize("granted", [(500, 500), (700, 300)])
def test_windows_split_the_card_as_granted(site: Site, record: Record, granted: tuple[int, int]) -> None:
    tenants = [Tenant(TaskId(str(number)), milli) for number, milli in enumerate(granted)]
    windows = plan(tenants).granted
    with site.task(site.whole_mib).program() as alone:
        rounds = int(ready(alone).ask(f"gauge({KERNEL_MS}, {site.time_s(2.0)})"))
        (whole,) = rates([alone], rounds, site.time_s(LONG_S))
    with contextlib.ExitStack() as stack:
        tasks = [site.task(site.whole_mib // 2, windows[tenant.task]) for tenant in tenants]
        programs = [ready(stack.enter_context(task.program())) for task in tasks]
        parts = [rate / whole for rate in rates(programs, rounds, site.time_s(LONG_S))]
    record(f"windows {granted}", {"parts": parts, "kernels in a second alone": whole})
    assert min(parts) > 0
    if site.is_real:
        assert all(abs(part - milli / 1000) <= OFF_MOST for part, milli in zip(parts, granted, strict=True))
        assert sum(parts) >= SUM_LEAST


def work_of_two(mps: Mps, percentage: int | None) -> tuple[float, list[int]]:
    """What two clients of MPS do in a second together, and the multiprocessors that each is told of."""
    with contextlib.ExitStack() as stack:
        programs = [ready(stack.enter_context(mps.program(percentage))) for _ in range(2)]
        rounds = int(programs[0].ask(f"gauge({KERNEL_MS}, {2.0 if mps.is_real else 0.1})"))
        sms = [int(program.ask("sms()")) for program in programs]
        kernels = rates(programs, rounds, LONG_S if mps.is_real else LONG_S / 20)
    return sum(rate * rounds * told for rate, told in zip(kernels, sms, strict=True)), sms


def test_two_halves_by_mps_do_as_much_as_two_without_percentages(mps: Mps, record: Record) -> None:
    """Compared are blocks of threads times their rounds: a kernel is as wide as its client is told that the card is.
    What the percentages leave of the card is nobody's: 3 % of what they cover may be lost."""
    cap = cap_of(500, mps.compute_capability)
    assert cap is not None
    plain, plain_sms = work_of_two(mps, None)
    capped, capped_sms = work_of_two(mps, cap.percent)
    record(
        "two clients of MPS",
        {"percent": cap.percent, "of plain": capped / plain, "told": [plain_sms, capped_sms]},
    )
    if mps.is_real:
        assert capped >= OF_PLAIN_MPS_LEAST * plain * min(1.0, 2 * cap.percent / 100)
