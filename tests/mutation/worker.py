"""A process that runs tests on mutants, in a copy of the repository and in namespaces of its own."""

import contextlib
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.stages import ROOT, stages

#: What nearly all tests import beside the product.
LIBRARIES: Final = ("hypothesis", "msgspec", "numpy", "requests", "rich", "starlette.applications", "uvicorn")
CPU_S: Final = 600  # of one stage, which needs a third of it; a mutant that takes more is noticed
STAGE_S: Final = 3600  # by the clock
TEST_S: Final = 60  # of one test
OPTIONS: Final = (
    *("-x", "-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", f"--timeout={TEST_S}"),
    "-Wignore::pytest.PytestAssertRewriteWarning",  # libraries are imported before
)
SPACES: Final = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def _uncopied(folder: str, names: list[str]) -> list[str]:
    """List the entries of a folder that a copy does without: what is made, but byte code."""
    made = (".git", ".venv", "build", "dist")
    return [name for name in names if folder == str(ROOT) and (name in made or name.endswith("_cache"))]


class Worker:
    """A process with a copy of the repository.

    Args:
        number: Number of the worker.
    """

    def __init__(self, number: int) -> None:
        """Copy the repository, with its byte code, and start."""
        self._root = ROOT / "build/mutants" / str(number)
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(ROOT, self._root, symlinks=True, ignore=_uncopied)
        # A mutant and its module may have one size and one time: no byte code is kept of what comes later.
        env = {**os.environ, "PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        script = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /srv && exec "$@"'
        command = [sys.executable, "-m", "tests.mutation.worker"]
        self._process = subprocess.Popen(
            ["unshare", *SPACES, "sh", "-c", script, "sh", *command],
            cwd=self._root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def try_one(self, path: str, source: str, last_stage: int | None) -> tuple[str, int]:
        """Run tests on a mutant; the failure, empty if there is none, and the stage."""
        return self._ask({"path": path, "source": source, "last_stage": last_stage})

    def run(self, tests: Sequence[str]) -> str:
        """Run tests without a mutant; the first that fails, empty if none does."""
        return self._ask({"tests": tests})[0]

    def _ask(self, order: Mapping[str, object]) -> tuple[str, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        failed, number = json.loads(self._process.stdout.readline())
        return failed, number

    def close(self) -> None:
        """End the process, and remove the copy."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._root)


class Watch:
    """A plugin of pytest that knows the first failure, and saves time on what follows it."""

    def __init__(self) -> None:
        """Nothing has failed."""
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Let hypothesis report the first example that fails, and look for no simpler one."""
        import hypothesis

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", parent=hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of a test."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failed = self.failed or f"import of {report.nodeid}"


def pytest_of(names: Sequence[str]) -> str:
    """Run tests in this process, which has nothing else to do; the first that failed, empty if none did."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in 0, 1, 2:
        os.dup2(silence, descriptor)
    watch = Watch()
    status = pytest.main([*OPTIONS, *names], plugins=[watch])
    passed = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return "" if passed else watch.failed or str(status)


def run_stage(names: Sequence[str]) -> str:
    """Run tests in a child; the first that failed, empty if none did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, f"{pytest_of(names)}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    ended, _, _ = select.select([reading], [], [], STAGE_S)
    words = os.read(reading, 4096) if ended else b"hangs"
    os.close(reading)
    clear()
    return words.decode().strip() if words else "pytest died"


def run_stages(names_by_stage: Sequence[Sequence[str]]) -> tuple[str, int]:
    """Run stages until one has a failure; the failure, and the number of the last stage that ran."""
    number, failed = 0, ""
    for names in names_by_stage:
        number += 1
        if names and (failed := run_stage(names)):
            break
    return failed, number


def clear() -> None:
    """Kill all that a stage left: this process is the first of its namespace."""
    assert os.getpid() == 1, "kill(-1) is for a namespace of its own"
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    reap(0)


def reap(options: int = os.WNOHANG) -> None:
    """Take in what has ended, as the first process of a namespace must: orphans come to it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options) != (0, 0):
            pass


def work() -> None:
    """Try mutants from standard input, a line each, and print the fates."""
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    for name in LIBRARIES:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        if "tests" in order:
            answer = run_stage(order["tests"]), 0
        else:
            answer = run_mutant(ROOT / order["path"], order["source"], order["last_stage"])
        print(json.dumps(answer), file=answers, flush=True)


def run_mutant(path: Path, source: str, last_stage: int | None) -> tuple[str, int]:
    """Run the stages of a module with a fault; the failure, and the number of the last stage that ran."""
    original = path.read_bytes()
    path.write_text(source)
    for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        kept.unlink()
    failed, number = run_stages(stages(str(path.relative_to(ROOT)))[:last_stage])
    path.write_bytes(original)
    return failed, number


if __name__ == "__main__":
    work()
