"""What our libraries cost: steps of many kernels, beside those with the driver's own libraries."""

import contextlib
import random

import pytest

from mesos_gpu.policy.sharing.windows import PERIOD_US, Window
from tests.cuda import Program
from tests.gpu.sites import Record, Site, ready
from tests.gpu.test_torch import torch_program

SLOWER_MOST = 0.005
KERNELS, KERNEL_MS = 200, 0.05
TURNS = 30
NETWORKS = {"ResNet-50 step": "learn(50, 64)", "ResNet-152 inference": "infer(152, 64)"}


def kinds(site: Site) -> dict[str, tuple[int | None, Window | None]]:
    """Memory and window of each kind of task; what a whole GPU gets are the driver's own libraries, in a volume."""
    return {
        "whole": (None, None),
        "share of memory alone": (site.whole_mib, None),
        "window of all time": (site.whole_mib, Window(0, PERIOD_US)),
    }


def slower(programs: dict[str, Program], expression: str, turns: int) -> dict[str, float]:
    """By how much each is slower than `bare`: of the best of its turns, in changing order."""
    best_s = dict.fromkeys(programs, float("inf"))
    chance = random.Random(0)
    for _ in range(turns):
        for name in chance.sample(list(programs), len(programs)):
            best_s[name] = min(best_s[name], float(programs[name].ask(expression)))
    return {name: best / best_s["bare"] - 1 for name, best in best_s.items()}


def test_steps_are_as_fast_as_with_the_drivers_own_libraries(site: Site, record: Record) -> None:
    with contextlib.ExitStack() as stack:
        programs = {"bare": ready(stack.enter_context(site.bare()))}
        rounds = int(programs["bare"].ask(f"gauge({KERNEL_MS}, {site.time_s(2.0)})"))
        for name, (memory_mib, window) in kinds(site).items():
            programs[name] = ready(stack.enter_context(site.task(memory_mib, window).program()))
        by = slower(programs, f"step({rounds}, {KERNELS})", TURNS if site.is_real else 1)
    record("slower than bare, steps of kernels", by)
    assert by.keys() == {"bare", *kinds(site)}
    if site.is_real:
        assert max(by.values()) <= SLOWER_MOST


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("site", ["card"], indirect=True)
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_as_fast_as_with_the_drivers_own_libraries(
    site: Site, torch_python: str, record: Record, network: str
) -> None:
    with contextlib.ExitStack() as stack:
        programs = {"bare": stack.enter_context(torch_program(torch_python, None))}
        for name, (memory_mib, window) in kinds(site).items():
            task = site.task(memory_mib, window)
            programs[name] = stack.enter_context(torch_program(torch_python, task))
        for program in programs.values():
            assert program.ask(NETWORKS[network]) == "None", program.said()
        by = slower(programs, "seconds(5)", 10)
    record(f"slower than bare, {network}", by)
    assert max(by.values()) <= SLOWER_MOST
