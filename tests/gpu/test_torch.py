"""PyTorch as a client of a share: it sees the share, and takes all of it and no more, in all its ways."""

import os
from pathlib import Path

import pytest

from tests.cuda import Program
from tests.gpu.sites import CHUNK_MIB, RealTask, Record, Site

SHARE_MIB = 8192
SLACK_MIB = 2  # for each process
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
SCRIPT = Path(__file__).parents[1] / "cuda/torch_program.py"
pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("site", ["card"], indirect=True)]


def torch_program(python: str, task: RealTask | None, **more: str) -> Program:
    """Start a program with PyTorch in a task; without one: as programs of this host run."""
    program = Program({**os.environ, **(task.env if task else {}), **more}, "", SCRIPT, python)
    assert program.started == "0", program.said()
    return program


@pytest.mark.parametrize("way", [{}, EXPANDABLE], ids=["segments", "expandable segments"])
def test_torch_takes_its_share_and_no_more(site: Site, torch_python: str, way: dict[str, str]) -> None:
    with torch_program(torch_python, site.task(SHARE_MIB), **way) as program:
        free_mib, total_mib = eval(program.ask("info()"))
        assert total_mib == SHARE_MIB
        taken_mib = int(program.ask(f"fill({CHUNK_MIB}, {2 * SHARE_MIB})"))
        assert free_mib - CHUNK_MIB - SLACK_MIB <= taken_mib <= free_mib + SLACK_MIB
        assert program.ask("let_go()") == "None"
        assert int(program.ask(f"fill({CHUNK_MIB}, {2 * SHARE_MIB})")) == taken_mib, (
            "what was let go is had again"
        )


def test_two_processes_have_one_share(site: Site, torch_python: str) -> None:
    task = site.task(SHARE_MIB)
    with torch_program(torch_python, task) as one, torch_program(torch_python, task) as other:
        first_mib = int(one.ask(f"fill({CHUNK_MIB}, {SHARE_MIB // 2})"))
        second_mib = int(other.ask(f"fill({CHUNK_MIB}, {2 * SHARE_MIB})"))
        assert SHARE_MIB - 2 * (CHUNK_MIB + SLACK_MIB) <= first_mib + second_mib <= SHARE_MIB + 2 * SLACK_MIB


def test_graphs_compute_as_without_us(site: Site, torch_python: str) -> None:
    with torch_program(torch_python, site.task(SHARE_MIB)) as program:
        assert float(program.ask("graph(20)")) < 1e-2, program.said()


def test_a_training_runs_in_a_share_and_what_it_calls_is_recorded(
    site: Site, torch_python: str, record: Record
) -> None:
    with torch_program(torch_python, site.task(SHARE_MIB)) as program:
        assert program.ask("learn(50, 16)") == "None", program.said()
        functions = eval(program.ask("called()"))
    record("functions of CUDA that PyTorch called", functions)
    assert functions
