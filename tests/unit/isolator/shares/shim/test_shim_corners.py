"""Sizes, pools, graphs, handles and threads at which an account of memory goes wrong easily. On doubles."""

import fcntl
import os
import struct
import subprocess
import sys

import pytest

from isolator.shares.shim.region import CardLimits
from mesos_gpu.model.ids import GpuId
from tests.cuda import Bench
from tests.doubles.cuda import MIB, Cards

OOM = "2"


def two_cards(bench: Bench, *mib: int) -> list[CardLimits]:
    bench.cards = Cards(bench.cards.path, 2)
    return [CardLimits(GpuId(bench.cards.uuid(card)), each * MIB) for card, each in enumerate(mib)]


def test_a_size_that_overflows_the_account_of_a_pool_is_refused_and_leaves_it_as_it_was(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("pool_async(500)") == "0"
        assert program.ask("new('cuMemAllocAsync', (1 << 64) - 400 * MIB, None)") == OOM
        assert program.ask("[pool_async(501), pool_async(500)]") == "[2, 0]"
        assert bench.cards.used_mib() == 1000


def test_a_pitch_that_overflows_is_refused(bench: Bench) -> None:
    with bench.task(100).program() as program:
        assert program.ask("[pitch((1 << 64) - 1, 1), pitch((1 << 64) - 512, 1 << 20)]") == f"[{OOM}, {OOM}]"
        assert program.ask("alloc(100)") == "0"


def test_the_own_pool_of_another_card_counts_for_that_card(bench: Bench) -> None:
    with bench.task_of(two_cards(bench, 1000, 100)).program() as program:
        assert program.ask("[use(0), from_pool(default_pool(1), 101)]") == f"[0, {OOM}]"
        assert program.ask("[from_pool(default_pool(1), 100), alloc(1000)]") == "[0, 0]"
        assert (bench.cards.used_mib(0), bench.cards.used_mib(1)) == (1000, 100)


def test_pools_come_and_go_without_end(bench: Bench) -> None:
    """There are places for 256 that live; those of the host's memory take them, too."""
    with bench.task(1000).program() as program:
        for location in (1, 2):
            one = f"[make_pool({location}), call('cuMemPoolDestroy', held.pop())]"
            assert program.ask(f"[{one} for _ in range(300)][-1]") == "[0, 0]"
        assert program.ask("pool_async(1000)") == "0"


@pytest.mark.parametrize(
    "mipmaps", ["4096, 0, 1024, 20, 1", "32768, 2, 0, 20", "1024, 1024, 0, 3", "256, 256, 64, 20"]
)
def test_all_levels_of_a_mipmap_count(bench: Bench, mipmaps: str) -> None:
    """Levels of lines are a half of the one before, those of planes a quarter, those of spaces an eighth."""
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask(f"mipmaps({mipmaps})") == "0"
        driver_bytes = bench.cards.used_mib() * MIB
        slack = 20 * 4 * 1024  # the double takes no notice of how many levels there can be
        assert driver_bytes - slack <= task.usage().memory_bytes <= driver_bytes


# --- graphs


def test_a_graph_that_allocates_on_two_cards_counts_on_both(bench: Bench) -> None:
    with bench.task_of(two_cards(bench, 1000, 100)).program() as program:
        assert program.ask("[use(0), instantiate(graph_of((60, 1), (60, 1), (10, 0)))]") == "[0, 0]"
        assert program.ask("graph_launch()") == OOM, "120 of 100 MiB of the second card"
        assert program.ask("[alloc(1000), free()]") == "[0, 0]", "nothing of the first one is counted"
        assert program.ask("[instantiate(graph_of((60, 1), (900, 0))), graph_launch()]") == "[0, 0]"
        assert (bench.cards.used_mib(0), bench.cards.used_mib(1)) == (900, 60)


def test_a_graph_counts_however_deep_in_others_it_is(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("[instantiate(graph_of((600, 0), depth=30)), alloc(500)]") == "[0, 0]"
        assert program.ask("[graph_launch(0), free(), graph_launch(0)]") == f"[{OOM}, 0, 0]"


def test_a_graph_that_is_uploaded_when_it_is_made_has_to_fit_then(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask("[alloc(500), instantiate(graph_of((600, 0)), upload=True)]") == f"[0, {OOM}]"
        assert bench.cards.used_mib() == 500
        assert program.ask("[free(), instantiate(graph_of((600, 0)), upload=True)]") == "[0, 0]"
        assert task.usage().memory_bytes == 600 * MIB


def test_a_capture_on_a_threads_own_default_stream_is_seen(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program("ptsz") as program:
        assert program.ask("capture(600)") == "0"
        assert task.usage().memory_bytes == 0, "nothing is allocated before the graph runs"
        assert program.ask("[graph_launch(), alloc(500)]") == "[0, 0]"


def test_a_graph_may_be_made_while_what_it_needs_is_in_use(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert (
            program.ask("[alloc(500), graph(600), graph_launch(-1), free(0), graph_launch(-1)]")
            == "[0, 0, 2, 0, 0]"
        )
        assert program.ask("[alloc(0.5), capture(1000), capture(1001)]") == f"[0, 0, {OOM}]"


# --- threads, and libraries that are closed


def test_numbers_that_the_driver_uses_again_are_kept_apart(bench: Bench) -> None:
    """A handle is released, and its number given to another thread before the release has returned."""
    task = bench.task(1000)
    with task.program(STUB_SLOW="1") as program:
        assert program.ask("in_threads(4, 200, 10)") == "0"
        assert task.usage().memory_bytes == 0
        assert program.ask("alloc(1000)") == "0"


#: Calls the driver for the first time in a thread, forks meanwhile, and says what the child gets.
_FORKS_AMID = """
import ctypes, os, select, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
thread = threading.Thread(target=cuda.cuInit, args=(0,), daemon=True)
thread.start()
thread.join(1.0)
print("waits" if thread.is_alive() else "too late", flush=True)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"%d" % cuda.cuInit(0))
    os._exit(0)
sys.stdin.readline()
answered, _, _ = select.select([reader], [], [], 60)
print(os.read(reader, 8).decode() if answered else "hangs", flush=True)
os.kill(child, 9)
"""


def test_the_child_of_a_fork_amid_the_first_call_starts_by_itself(bench: Bench) -> None:
    task = bench.task(1000)
    with open(task.region.usage_path, "r+b") as usage:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(usage, fcntl.F_OFD_SETLK, lock)  # as if a process were changing accounts
        with subprocess.Popen(
            [sys.executable, "-c", _FORKS_AMID],
            env=task.host.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdin is not None
            assert program.stdout.readline() == "waits\n"
            fcntl.fcntl(usage, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "0\n"


def test_a_library_that_is_closed_and_opened_again_knows_what_is_allocated(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask("[alloc(600), reopen(), init(), alloc(401), alloc(400)]") == "[0, None, 0, 2, 0]"
        assert (task.usage().memory_bytes, task.usage().processes) == (1000 * MIB, 1)
        assert program.ask("[free(0), alloc(600)]") == "[0, 0]"
