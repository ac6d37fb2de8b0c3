"""Imports that a start of the command line does without: each Tab of a shell, and each turn of a loop, is a start."""

import os
import subprocess
import sys

import pytest

from tests.contract.cli.cli_rig import PROGRAM
from tests.doubles.fake_rest import FakeRest

#: Packages that a start does without, with all that is below them.
SLOW = (
    "msgspec", "pymesos", "rich", "starlette", "websockets", "yaml", "zoneinfo", "mesos_gpu.api", "mesos_gpu.engine",
    "mesos_gpu.model.jobs.job", "mesos_gpu.model.tenancy", "mesos_gpu.policy", "mesos_gpu.scheduler",
)  # fmt: skip
MARK = "imported:"
TOLD = (
    "import atexit, sys\n"
    f"atexit.register(lambda: print({MARK!r}, *sys.modules, file=sys.stderr))\n"
    "from mesos_gpu.start import main\n"
    "main()"
)
COMPLETES = {"_MESOS_GPU_COMPLETE": "bash_complete", "COMP_CWORD": "1"}


def imported(*words: str, **env: str) -> tuple[str, set[str]]:
    """Return what the program prints on stdout, and the modules that it has imported at its end."""
    command = [sys.executable, "-c", TOLD, *words]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout, set(done.stderr.rpartition(MARK)[2].split())


def slow(modules: set[str], *more: str) -> set[str]:
    """Return those of the modules that are slow, or below one that is."""
    return {name for name in modules for each in (*SLOW, *more) if f"{name}.".startswith(f"{each}.")}


@pytest.mark.parametrize("words", [("--version",), ("--help",), ()])
def test_start_that_asks_no_scheduler_imports_no_command_and_no_client(words: tuple[str, ...]) -> None:
    said, modules = imported(*words)
    assert "mesos-gpu" in said
    assert (
        slow(
            modules,
            "requests",
            "urllib3",
            "mesos_gpu.cli.jobs",
            "mesos_gpu.cli.client",
            "mesos_gpu.model.jobs",
        )
        == set()
    )


@pytest.mark.parametrize("typed", ["", "k"])
def test_completion_of_commands_imports_none_of_them(typed: str) -> None:
    said, modules = imported(COMP_WORDS=f"mesos-gpu {typed}", **COMPLETES)
    assert "plain,kill" in said.split()
    assert slow(modules, "requests", "mesos_gpu.cli.jobs", "mesos_gpu.cli.client") == set()


@pytest.mark.parametrize("words", [("ps",), ("ps", "--json"), ("kill", "job")])
def test_command_about_jobs_imports_no_types_of_the_whole_interface(
    rest: FakeRest, words: tuple[str, ...]
) -> None:
    job = rest.add()
    said, modules = imported(*words, "--url", rest.url)
    assert job in said
    assert slow(modules) == set()


def test_answer_without_a_field_is_held_against_its_type(rest: FakeRest) -> None:
    job = rest.add()
    del rest.jobs[job]["app"]  # as of an earlier release: it may be null
    said, modules = imported("ps", "--url", rest.url, "-o", "wide")
    assert job in said
    assert "mesos_gpu.api.spec.shapes" in modules
    del rest.jobs[job]["queue"]
    refused = subprocess.run([*PROGRAM, "ps", "--url", rest.url], capture_output=True, text=True, timeout=60)
    assert (refused.returncode, refused.stdout) == (76, "")
    assert "is not a mesos-gpu scheduler of this version" in refused.stderr
    assert "queue" in refused.stderr
