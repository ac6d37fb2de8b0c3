"""Our libraries over the driver's own, on a card: memory up to the share and not a MiB more."""

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu.sites import CHUNK_MIB, MIB, OUT_OF_MEMORY, Record, Site

SHARE_MIB = 4096
SLACK_MIB = 2  # for each process


@pytest.mark.parametrize("way", ["dlsym", "gpa", "gpa-gpa", "ptsz"])
def test_memory_ends_at_the_share(site: Site, way: str) -> None:
    with site.task(SHARE_MIB).program(way) as program:
        assert program.started == "0", program.said()
        result, free_mib, total_mib = eval(program.ask("info()"))
        assert (result, total_mib) == (0, SHARE_MIB)
        chunks = int(program.ask(f"allocs({CHUNK_MIB}, {SHARE_MIB // CHUNK_MIB + 8})"))
        assert free_mib - CHUNK_MIB - SLACK_MIB <= chunks * CHUNK_MIB <= free_mib + SLACK_MIB
        assert program.ask(f"alloc({CHUNK_MIB})") == str(OUT_OF_MEMORY)
        assert program.ask("free()") == "0"
        assert program.ask(f"alloc({CHUNK_MIB})") == "0"


def test_two_processes_have_one_share(site: Site) -> None:
    shared = site.task(SHARE_MIB)
    with shared.program() as one, shared.program() as other:
        assert (one.started, other.started) == ("0", "0")
        free_mib = eval(one.ask("info()"))[1]
        first = int(one.ask(f"allocs({CHUNK_MIB}, {free_mib // CHUNK_MIB // 2})"))
        second = int(other.ask(f"allocs({CHUNK_MIB}, {free_mib // CHUNK_MIB + 8})"))
        assert (first + second) * CHUNK_MIB <= free_mib + 2 * SLACK_MIB
        one.kill()
        assert int(other.ask(f"allocs({CHUNK_MIB}, {first})")) > 0, "what the dead one had is free"


def test_physical_memory_and_graphs_count(site: Site) -> None:
    with site.task(SHARE_MIB).program() as program:
        assert program.ask(f"create({SHARE_MIB + CHUNK_MIB})") == str(OUT_OF_MEMORY)
        assert program.ask(f"create({CHUNK_MIB})") == "0"
        assert program.ask(f"graph({SHARE_MIB + CHUNK_MIB})") != "0" or program.ask("graph_launch()") != "0"
        assert program.ask(f"pool_async({SHARE_MIB + CHUNK_MIB})") == str(OUT_OF_MEMORY)


@pytest.mark.gpu
@pytest.mark.parametrize("site", ["card"], indirect=True)
def test_nvidia_smi_shows_the_share(site: Site) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("needs nvidia-smi")
    fields = ["--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        [program, f"--id={site.card.id}", *fields],
        env=site.task(SHARE_MIB).env,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert int(done.stdout) == SHARE_MIB


def test_a_share_is_resized_while_it_is_used(site: Site) -> None:
    shared = site.task(SHARE_MIB)
    with shared.program() as program:
        assert program.ask(f"alloc({SHARE_MIB + CHUNK_MIB})") == str(OUT_OF_MEMORY)
        shared.region.change(site.card.id, memory_bytes=2 * SHARE_MIB * MIB)
        assert program.ask(f"alloc({SHARE_MIB + CHUNK_MIB})") == "0"


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_memory_of_a_context_is_measured(site: Site, record: Record, processes: int) -> None:
    """What the driver says of each process, without what it allocated: what a share must leave for contexts."""
    bare = site.task()
    with contextlib.ExitStack() as programs:
        started = [programs.enter_context(bare.program()) for _ in range(processes)]
        for program in started:
            assert program.started == "0", program.said()
            assert program.ask(f"alloc({CHUNK_MIB})") == "0"
        used_mib = dict(site.read().process_mib or ())
        if not {program.pid for program in started} <= used_mib.keys():
            pytest.skip("needs the host's pid namespace: NVML names other pids")
        contexts_mib = [used_mib[program.pid] - CHUNK_MIB for program in started]
        record(f"contexts of {processes} processes, MiB", contexts_mib)
        assert all(0 <= mib < 2048 for mib in contexts_mib)


def test_shim_without_limits_starts_no_program(site: Site) -> None:
    shared = site.task(SHARE_MIB)
    Path(shared.region.path, "limits").unlink()
    with shared.program() as program:
        assert program.started == "800"  # CUDA_ERROR_NOT_PERMITTED
