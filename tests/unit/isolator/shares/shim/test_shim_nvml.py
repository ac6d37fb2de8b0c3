"""NVML shows a task its share: NVIDIA's own Python binding as client, over a double of the driver's library."""

import subprocess
import sys

import pytest

from isolator.shares.shim.region import CardLimits
from mesos_gpu.model.ids import GpuId
from tests.cuda import Bench
from tests.doubles.cuda import MIB, Cards, Host

LOOK = """
import pynvml as n
n.nvmlInit()
for index in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(index)
    one, two = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
    print(n.nvmlDeviceGetName(h), n.nvmlSystemGetDriverVersion(), *[x >> 20 for x in (one.total, one.used, one.free)],
        *[x >> 20 for x in (two.total, two.used, two.free)])
"""


def seen(host: Host, **env: str) -> list[str]:
    """What NVIDIA's binding sees of each card."""
    argv = [sys.executable, "-c", LOOK]
    done = subprocess.run(argv, env=host.env(**env), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_memory_is_the_share_and_all_else_is_the_cards(bench: Bench) -> None:
    """HAMi-core #181: programs that size themselves by NVML, and not by CUDA."""
    task = bench.task(1000)
    with task.program() as program:
        program.ask("alloc(600)")
        assert seen(task.host) == ["Stub GPU 999.1 1000 600 400 1000 600 400"]
        assert seen(bench.bare()) == ["Stub GPU 999.1 16384 600 15784 16384 600 15784"]
        program.kill()
        assert seen(task.host) == ["Stub GPU 999.1 1000 0 1000 1000 0 1000"], "the dead hold nothing"


def test_more_used_than_granted_and_a_limit_above_the_card_show_sound_figures(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        program.ask("alloc(900)")
        task.region.change(task.gpus[0], memory_bytes=500 * MIB)
        assert seen(task.host) == ["Stub GPU 999.1 500 500 0 500 500 0"]
        task.region.change(task.gpus[0], memory_bytes=99_999 * MIB)
        assert seen(task.host) == ["Stub GPU 999.1 16384 900 15484 16384 900 15484"]


def test_each_card_shows_its_own_share(bench: Bench) -> None:
    bench.cards = Cards(bench.cards.path, 2)
    limits = [CardLimits(GpuId(bench.cards.uuid(number)), (number + 1) * 100 * MIB) for number in (0, 1)]
    assert [line.split()[3] for line in seen(bench.task_of(limits).host)] == ["100", "200"]


def test_a_card_without_figures_of_its_own_shows_the_share(bench: Bench) -> None:
    """KAI #1967: cards that share the host's memory, as GB10, answer NVML_ERROR_NOT_SUPPORTED."""
    assert seen(bench.task(1000).host, STUB_NVML_WITHOUT_MEMORY="1") == [
        "Stub GPU 999.1 1000 0 1000 1000 0 1000"
    ]


@pytest.mark.parametrize("name", ["limits", "usage"])
def test_nvml_without_a_share_shows_the_card_and_no_program_fails(bench: Bench, name: str) -> None:
    task = bench.task(1000)
    (task.host.region / name).unlink()
    assert seen(task.host) == ["Stub GPU 999.1 16384 0 16384 16384 0 16384"]
