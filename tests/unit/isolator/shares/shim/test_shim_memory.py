"""A share of memory holds, whatever function takes it and however that was found. On doubles of the driver."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.model.ids import GpuId
from tests.conftest import wait_until
from tests.cuda import PROGRAM, Bench, compiler_or_skip
from tests.doubles.cuda import MIB, Cards

OOM, NOT_PERMITTED, NOT_SUPPORTED = "2", "800", "801"
WAYS = ("dlsym", "gpa", "gpa-gpa", "ptsz")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "take", ["alloc({})", "managed({})", "create({})", "pool_async({})", "array({})", "array3d({})"]
)
def test_a_share_is_kept_to_the_byte_by_every_function_and_every_way_to_find_it(
    bench: Bench, way: str, take: str
) -> None:
    task = bench.task(1000)
    with task.program(way) as program:
        assert program.started == "0"
        assert program.ask(take.format(600)) == "0"
        assert program.ask(take.format(401)) == OOM
        assert program.ask(take.format(400)) == "0"
        assert program.ask("alloc(1 / MIB)") == OOM, "not one byte more"
        assert program.ask("info()") == "(0, 0, 1000)"
        assert bench.cards.used_mib() == 1000


def test_a_program_that_is_linked_is_held_too(bench: Bench) -> None:
    client = bench.task(1000).host.client("alloc", 600, 401, 400, 1)
    answers, _ = client.communicate(timeout=60)
    assert answers.split() == ["0", OOM, "0", OOM]


def test_pitched_memory_counts_with_its_pitch(bench: Bench) -> None:
    with bench.task(100).program() as program:
        assert program.ask("pitch(1, 204800)") == "0", "100 MiB in rows of 512 bytes"
        assert program.ask("alloc(1 / MIB)") == OOM
        assert program.ask("pitch(1 << 62, 1 << 62)") == OOM, "a product that overflows"


def test_names_that_only_begin_as_the_drivers_do_are_left_alone(bench: Bench) -> None:
    """HAMi-core #215."""
    with bench.task().program("dlsym") as program:
        assert program.ask("library.cuMemory_of_another_library()") == "42"


def test_a_name_that_the_driver_lacks_answers_and_does_not_crash(bench: Bench) -> None:
    with bench.task().program("dlsym") as program:
        assert program.ask("library.cuGraphAddNode_v2(0, 0, 0, 0, 0, 0)") == NOT_SUPPORTED


def test_allocations_beyond_all_numbers_are_refused(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("new('cuMemAlloc', (1 << 64) - 1)") == OOM
        assert program.ask("new('cuMemAlloc', 1 << 63)") == OOM
        assert program.ask("alloc(1000)") == "0"


def test_too_much_is_answered_as_the_driver_answers_it(bench: Bench) -> None:
    """HAMi-core #55: another code than CUDA_ERROR_OUT_OF_MEMORY stops programs that would have coped."""
    with bench.task(1).program() as program:
        assert program.ask("alloc(2)") == OOM


def test_a_limit_above_the_card_is_not_shown_as_its_size(bench: Bench) -> None:
    """HAMi-core pull request 81."""
    with bench.task(99_999).program() as program:
        assert program.ask("(total(), info())") == "(16384, (0, 16384, 16384))"


def test_more_used_than_granted_shows_nothing_free(bench: Bench) -> None:
    """HAMi-core #200: 18 EB."""
    task = bench.task(1000)
    with task.program() as program:
        program.ask("alloc(900)")
        task.region.change(task.gpus[0], memory_bytes=500 * MIB)
        assert program.ask("info()") == "(0, 0, 500)"
        assert task.usage().free_bytes(task.region.limits()[0]) == 0
        assert program.ask("alloc(1)") == OOM
        assert program.ask("free()") == "0"
        assert program.ask("info()") == "(0, 500, 500)"


# --- which card


def test_a_second_card_has_a_limit_of_its_own(bench: Bench) -> None:
    """HAMi-core #104: the second card unlimited."""
    bench.cards = Cards(bench.cards.path, 2)
    gpus = [GpuId(bench.cards.uuid(number)) for number in (0, 1)]
    with bench.task_of([CardLimits(gpus[0], 100 * MIB), CardLimits(gpus[1], 200 * MIB)]).program() as program:
        assert (
            program.ask("[use(1), alloc(200), alloc(1), use(0), alloc(100), alloc(1)]")
            == "[0, 0, 2, 0, 0, 2]"
        )


def test_a_card_that_is_none_of_the_tasks_has_nothing(bench: Bench) -> None:
    bench.cards = Cards(bench.cards.path, 2)
    with bench.task(100, card=0).program() as program:
        assert program.ask("[use(1), alloc(1), info(), total(1)]") == "[0, 2, (0, 0, 0), 0]"


def test_a_card_is_known_by_its_uuid_and_not_by_its_number(bench: Bench) -> None:
    bench.cards = Cards(bench.cards.path, 2)
    with bench.task(100, card=1).program() as program:
        assert program.ask("[alloc(1), use(1), alloc(100), alloc(1)]") == "[2, 0, 0, 2]"


def test_physical_memory_counts_for_the_card_that_it_names(bench: Bench) -> None:
    """HAMi-core #187: memory that is created for another place than the current card."""
    bench.cards = Cards(bench.cards.path, 2)
    gpus = [GpuId(bench.cards.uuid(number)) for number in (0, 1)]
    with bench.task_of([CardLimits(gpus[0], 100 * MIB), CardLimits(gpus[1], 200 * MIB)]).program() as program:
        assert program.ask("[create(200, 1, 1), create(1, 1, 1), create(100, 1, 0)]") == "[0, 2, 0]"
        assert program.ask("[create(5000, place) for place in (2, 3, 4)]") == "[0, 0, 0]", (
            "the host's is no card's"
        )
        assert (
            program.ask("[free_all(), use(0), create(101, 6), create(100, 6), create(1, 9)][1:]")
            == "[0, 2, 0, 2]"
        )


# --- how long memory counts


def test_memory_that_is_freed_can_be_allocated_again(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        for _ in range(3):
            assert program.ask("[alloc(1000), free()]") == "[0, 0]"
            assert program.ask("[create(1000), release(held.pop())]") == "[0, 0]"
            assert program.ask("[array(1000), call('cuArrayDestroy', held.pop())]") == "[0, 0]"
        assert program.ask("call('cuMemFree', 12345)") == "1", "the driver's own answer"


def test_physical_memory_counts_while_a_handle_or_a_mapping_lives(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask("[create(800), map_(4096, 800, held[0]), release(held[0])]") == "[0, 0, 0]"
        assert program.ask("alloc(300)") == OOM, "it is mapped still"
        assert program.ask("[create(100), held[0] == held[1]]") == "[0, True]", (
            "the driver uses the number again"
        )
        assert program.ask("release(held.pop())") == "0"
        assert program.ask("alloc(300)") == OOM
        assert program.ask("retain(4100)") == "0"
        assert program.ask("[unmap(4096, 800), alloc(300)]") == "[0, 2]", "there is a handle again"
        assert program.ask("[release(held.pop()), alloc(1000)]") == "[0, 0]"
        assert bench.cards.used_mib() == 1000


def test_unmap_may_end_several_mappings(bench: Bench) -> None:
    """Growing segments of PyTorch are such: 2 MiB each, side by side."""
    with bench.task(100).program() as program:
        program.ask("[(create(10), map_(4096 + 10 * i, 10, held[-1]), release(held[-1])) for i in range(10)]")
        assert program.ask("alloc(1)") == OOM
        assert program.ask("[unmap(4096, 50), alloc(50), alloc(1)]") == "[0, 0, 2]"


def test_imported_memory_counts_once_it_is_mapped(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("[import_(600), alloc(600)]") == "[0, 0]", "an import alone holds nothing of ours"
        assert program.ask("map_(4096, 600, held[0])") == OOM
        assert program.ask("[free(), map_(4096, 600, held[0]), alloc(600)]") == "[0, 0, 2]"
        assert program.ask("[unmap(4096, 600), release(held[0]), alloc(1000)]") == "[0, 0, 0]"


def test_memory_that_another_process_keeps_alive_is_that_ones(bench: Bench) -> None:
    """IPC of old: the exporter must keep it for as long as it is open elsewhere, and counts it."""
    with bench.task(10).program() as program:
        assert program.ask("[ipc(), alloc(10)]") == "[0, 0]"


def test_a_pool_counts_what_it_keeps_until_it_is_trimmed(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask("[keep(500), pool_async(500), free_async()]") == "[0, 0, 0]"
        assert task.usage().memory_bytes == 500 * MIB
        assert program.ask("[pool_async(500), free_async()]") == "[0, 0]", "what it keeps is used first"
        assert task.usage().memory_bytes == 500 * MIB
        assert program.ask("trim()") == "0"
        assert task.usage().memory_bytes == 0


def test_memory_kept_by_a_pool_gives_way_to_an_allocation(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("[keep(800), pool_async(800), free_async(), alloc(900)]") == "[0, 0, 0, 0]"
        assert bench.cards.used_mib() == 900


def test_a_pool_of_ones_own_counts_and_one_of_the_hosts_memory_does_not(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert (
            program.ask("[make_pool(), from_pool(held[0], 900), from_pool(held[0], 200), alloc(200)]")
            == "[0, 0, 2, 2]"
        )
        assert program.ask("[free_async(), call('cuMemPoolDestroy', held.pop()), alloc(1000)]") == "[0, 0, 0]"
        assert program.ask("[free(), make_pool(2), from_pool(held[-1], 5000), alloc(1000)]") == "[0, 0, 0, 0]"


def test_a_pool_of_memory_that_moves_counts_wherever_it_is_said_to_be(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert (
            program.ask("[make_pool(2, kind=2), from_pool(held[0], 900), from_pool(held[0], 200)]")
            == "[0, 0, 2]"
        )


def test_a_context_takes_with_it_what_was_allocated_in_it(bench: Bench) -> None:
    with bench.task(1000).program() as program:
        assert program.ask("[alloc(500), reset(), use(0), alloc(1000)]") == "[0, 0, 0, 0]"
        assert program.ask("[reset(), context(), alloc(1000)]") == "[0, 0, 0]"
        assert program.ask("[held.pop(), destroy(), use(0), alloc(1000)][1:]") == "[0, 0, 0]"


# --- graphs


@pytest.mark.parametrize("general", [False, True])
def test_memory_of_graphs_counts_when_they_run(bench: Bench, general: bool) -> None:
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask(f"graph(1001, general={general})") == OOM, "no card part could ever hold it"
        assert program.ask(f"[graph(400, 400, general={general}), alloc(300)]") == "[0, 0]"
        assert program.ask("graph_launch(0)") == OOM
        assert program.ask("[free(), graph_launch(0), graph_launch(0)]") == "[0, 0, 0]"
        assert task.usage().memory_bytes == 800 * MIB, "the driver keeps it for the next launch"
        assert program.ask("alloc(900)") == "0", "and gives it back where it is needed"
        assert program.ask("graph_launch(0)") == OOM
        assert program.ask("[free(), graph_launch(0)]") == "[0, 0]"
        assert program.ask("[call('cuDeviceGraphMemTrim', 0), alloc(1000)]") == "[0, 0]"


def test_allocations_that_are_captured_count_when_the_graph_runs(bench: Bench) -> None:
    """HAMi-core #192: charged wrongly, and a crash, under a capture."""
    task = bench.task(1000)
    with task.program() as program:
        assert program.ask("capture(600)") == "0"
        assert task.usage().memory_bytes == 0
        assert program.ask("[graph_launch(), graph_launch(), alloc(600)]") == "[0, 0, 0]"
        assert program.ask("[free(), capture(1001)]") == f"[0, {OOM}]"


def test_sparse_textures_are_refused_and_arrays_without_memory_cost_nothing(bench: Bench) -> None:
    with bench.task(10).program("dlsym") as program:
        assert program.ask("library.cuMemMapArrayAsync(0, 0, 0)") == NOT_SUPPORTED
        assert program.ask("new('cuArray3DCreate', byref(Array3D(1024, 256, 10, 0x20, 1, 0x40)))") == "0"


# --- processes


def test_the_processes_of_a_task_share_its_share(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as one, task.program("dlsym") as two:
        assert one.ask("alloc(700)") == "0"
        assert two.ask("info()") == "(0, 300, 1000)"
        assert two.ask("[alloc(400), alloc(300)]") == "[2, 0]"
        assert (task.usage().memory_bytes, task.usage().processes) == (1000 * MIB, 2)
        with bench.task(2000).program() as other:
            assert other.ask("alloc(2000)") == "0", "another task has its own"
        one.kill()
        assert task.usage().memory_bytes == 300 * MIB
        assert two.ask("alloc(700)") == "0", "kill -9 gives it back"


def test_the_child_of_a_fork_is_a_process_of_its_own(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        program.ask("alloc(600)")
        assert program.ask("[fork(400), fork(401), fork(1)]") == "[0, 2, 0]"
        assert task.usage().memory_bytes == 600 * MIB, "the children are gone, and what they held"


def test_a_child_that_lives_on_does_not_keep_its_dead_parents_memory(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        child = int(program.ask("[alloc(600), fork_and_stay()][1]"))
        assert task.usage().memory_bytes == 600 * MIB
        program.kill()
        try:
            assert os.path.exists(f"/proc/{child}")
            # It lets its parent's locks go at its first step, which may come late on a busy machine.
            wait_until(
                "nothing is held", lambda: (task.usage().memory_bytes, task.usage().processes) == (0, 0)
            )
        finally:
            os.kill(child, 9)


def test_a_program_that_closes_all_descriptors_still_counts(bench: Bench) -> None:
    """A daemon closes what it does not know; the kernel then lets our locks go."""
    task = bench.task(1000)
    with task.program() as one:
        assert one.ask("[alloc(600), close_descriptors(), alloc(300)]") == "[0, 0, 0]"
        with task.program() as two:
            assert two.ask("[alloc(200), alloc(100)]") == "[2, 0]"
        assert task.usage().memory_bytes == 900 * MIB


def test_share_is_not_exceeded_by_eight_processes_that_race(bench: Bench) -> None:
    task = bench.task(1000)
    programs = [task.program() for _ in range(8)]
    try:
        for program in programs:
            program.tell("allocs(10, 40)")
        assert sum(int(program.hear()) for program in programs) == 100
        assert task.usage().refused == 220
        assert task.usage().peak_bytes == 1000 * MIB
    finally:
        for program in programs:
            program.__exit__()


def test_a_process_costs_its_context_too(bench: Bench) -> None:
    with bench.task(1000, context_mib=300).program() as program:
        assert program.ask("[alloc(600), alloc(200), alloc(100)]") == "[0, 2, 0]"
        assert program.ask("[free(), free(), alloc(701)]") == "[0, 0, 2]", "the context stays"


# --- limits that change


def test_limits_change_while_a_task_runs(bench: Bench) -> None:
    task = bench.task(1000)
    gpu = task.gpus[0]
    with task.program() as program:
        program.ask("alloc(1000)")
        task.region.change(gpu, memory_bytes=1500 * MIB)
        assert program.ask("[alloc(500), alloc(1), total()]") == "[0, 2, 1500]"
        task.region.change(gpu, memory_bytes=800 * MIB)
        assert program.ask("alloc(1)") == OOM
        task.region.change(gpu, memory_bytes=2000 * MIB, unaccounted_bytes=490 * MIB)
        assert program.ask("[alloc(11), alloc(10)]") == "[2, 0]", (
            "what the driver sees beyond the account counts"
        )


def test_a_writer_that_was_killed_leaves_the_limits_that_were(bench: Bench) -> None:
    task = bench.task(1000)
    with task.program() as program:
        program.ask("alloc(500)")
        with open(task.region.limits_path, "r+b") as file:
            file.seek(8)
            file.write((7).to_bytes(8, "little"))
            file.write(b"\xff" * 64)
        assert program.ask("[alloc(501), alloc(500)]") == "[2, 0]"
        began = time.monotonic()
        assert program.ask("[free(), allocs(1, 300)]") == "[0, 300]"
        assert time.monotonic() - began < 10, "it is not waited for again and again"
        task.region.write([CardLimits(task.gpus[0], 1001 * MIB)])
        assert program.ask("total()") == "1001", "the next writer is heard"


# --- fail closed


def without_limits(task_share: os.PathLike[str]) -> None:
    os.unlink(os.path.join(task_share, "limits"))


def damaged_limits(task_share: os.PathLike[str]) -> None:
    with open(os.path.join(task_share, "limits"), "r+b") as file:
        file.write(b"XXXX")


def short_limits(task_share: os.PathLike[str]) -> None:
    os.truncate(os.path.join(task_share, "limits"), 100)


def limits_for_ever_half_written(task_share: os.PathLike[str]) -> None:
    with open(os.path.join(task_share, "limits"), "r+b") as file:
        file.seek(8)
        file.write((1).to_bytes(8, "little"))


def without_usage(task_share: os.PathLike[str]) -> None:
    os.unlink(os.path.join(task_share, "usage"))


def short_usage(task_share: os.PathLike[str]) -> None:
    os.truncate(os.path.join(task_share, "usage"), 100)


@pytest.mark.parametrize(
    "harm",
    [without_limits, damaged_limits, short_limits, limits_for_ever_half_written, without_usage, short_usage],
)
def test_without_a_share_that_can_be_kept_there_is_no_gpu(bench: Bench, harm: object) -> None:
    assert callable(harm)
    task = bench.task(1000)
    harm(task.host.region)
    with task.program() as program:
        assert program.started == NOT_PERMITTED
        assert program.ask("[init(), alloc(1)]") in ("[800, 2]", "[800, 3]")
        (line,) = program.said().splitlines()
        assert line.startswith("mesos_gpu: no GPU is given, for this task's share cannot be kept: ")


def test_environment_variables_decide_nothing(bench: Bench) -> None:
    task, wide = bench.task(100), bench.task(10_000)
    names = ("MGPU_DIR", "MESOS_GPU_SHARE", "CUDA_MEM_LIMIT", "MESOS_GPU_SHIM")
    env = {name: value for name in names for value in (str(wide.host.region),)}
    with task.program(**env) as program:
        assert program.ask("[alloc(100), alloc(1)]") == "[0, 2]"
    # a library of that name in front of LD_LIBRARY_PATH does not take the driver's place
    elsewhere = bench.task(10_000)
    shutil.copy(task.host.lib64 / "libcuda.so.1", elsewhere.host.lib64 / "libcuda.so.1")
    path = f"{elsewhere.host.lib64}:{task.host.lib64}"
    os.unlink(elsewhere.host.lib64 / "libcuda.so.1")
    with task.program(LD_LIBRARY_PATH=path) as program:
        assert program.ask("[alloc(100), alloc(1)]") == "[0, 2]"


def test_a_driver_that_tells_of_a_way_past_us_is_not_used(
    tmp_path: Path, libraries: tuple[Path, dict[str, str]]
) -> None:
    """The self-test at each start: what cuGetProcAddress answers must be ours."""
    lib64, compiler = tmp_path / "lib64", compiler_or_skip()
    lib64.mkdir()
    shutil.copy(libraries[1]["libcuda.so.1"], lib64)
    Region(tmp_path / "region").create(
        [CardLimits(GpuId("GPU-01020304-0506-0708-090a-0b0c0d0e0f10"), 1000 * MIB)]
    )
    tiny = [*compiler, "-O2", "-nostdlib", "-fno-stack-protector"]
    driver, program = (str(PROGRAM.with_name(f"tiny_{name}.c")) for name in ("driver", "client"))
    real, client = lib64 / "libmgpu-real-cuda.so", tmp_path / "client"
    for more, code in (("-DANSWERS", 2), ("-DANSWERS_OTHERWISE", 100)):
        shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", more]
        subprocess.run([*tiny, *shared, "-o", real, driver], check=True, timeout=60)
        subprocess.run([*tiny, "-o", client, program, str(real)], check=True, timeout=60)
        done = subprocess.run(
            [client], env={"LD_LIBRARY_PATH": str(lib64)}, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, "its self-test found a way past it" in done.stderr) == (code, code == 100)


def test_a_257th_process_gets_no_gpu(bench: Bench) -> None:
    import fcntl
    import struct

    task = bench.task(1000)
    fd = os.open(task.region.usage_path, os.O_RDWR)
    try:  # 256 living ones
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 256, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
        with task.program() as program:
            assert program.started == NOT_PERMITTED
            assert "256 processes have it already" in program.said()
    finally:
        os.close(fd)


def test_usage_that_the_task_itself_damages_harms_nobody_else(bench: Bench) -> None:
    task, other = bench.task(1000), bench.task(1000)
    with task.program() as program, other.program() as neighbour:
        program.ask("alloc(1)")
        size = task.region.usage_path.stat().st_size
        task.region.usage_path.write_bytes(b"\xff" * size)
        program.tell("alloc(1)")
        wait_until("it has answered or is gone", lambda: program.hear() is not None)
        assert neighbour.ask("[alloc(1000), alloc(1)]") == "[0, 2]"
