"""Progress of a run of tests: a file for each process that runs tests, which it writes and tests/runner/run.py reads.

A plugin of pytest, active where `VARIABLE` names the directory of the files. It also shows each failure as it happens,
so that a run that is killed has shown its results.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

VARIABLE = "MESOS_GPU_TEST_PROGRESS"
BEFORE = "(before its first test)"


@dataclass(frozen=True, slots=True)
class Running:
    """What one process does: its test's name, since when, in seconds."""

    worker: str
    pid: int
    name: str
    age_s: float

    @property
    def alive(self) -> bool:
        """Whether the process is there and no zombie."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX"

    @property
    def busy(self) -> bool:
        """Whether a test runs, and not what is between two."""
        return not self.name.startswith("(")


def read(directory: Path) -> list[Running]:
    """List the tests of each process that began and did not end of its own."""
    running = []
    for path in sorted(directory.iterdir()):
        if path.suffix:
            continue  # being written
        try:
            pid, name = path.read_text().split(" ", 1)
            age_s = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        running.append(Running(path.name, int(pid), name, age_s))
    return running


class Progress:
    """The plugin, in each process that runs tests."""

    def __init__(self, directory: Path) -> None:
        """The file is there until the process ends of its own."""
        self._path = directory / os.environ.get("PYTEST_XDIST_WORKER", "pytest")
        self._pid = os.getpid()
        self._write(BEFORE)

    def _write(self, name: str) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(f"{self._pid} {name}")
        new.replace(self._path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test."""
        self._write(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Between two tests: what kills the process now comes from one before."""
        self._write(f"(after {nodeid})")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """The end, fixtures of the session ended as well."""
        yield
        if os.getpid() == self._pid:
            self._path.unlink()


class Teller:
    """The plugin, in the process with the terminal: failures as they happen, and not once more at the end."""

    def __init__(self, reporter: TerminalReporter) -> None:
        """Writes through pytest's own."""
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show a failure, whole."""
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_sep("_", f"{report.nodeid} ({report.when})", red=True, bold=True)
            report.toterminal(self._reporter._tw)
            for title, text in report.sections:
                self._reporter.write_sep("-", title)
                self._reporter.write_line(text.rstrip("\n"))
            self._reporter.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """All failures were shown; their names follow."""
        self._reporter.config.option.tbstyle = "no"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add what this process needs, if the run is watched."""
    if not (directory := os.environ.get(VARIABLE)):
        return
    worker = hasattr(config, "workerinput")
    if worker or not config.getoption("numprocesses", 0):
        config.pluginmanager.register(Progress(Path(directory)))
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not worker:
        config.pluginmanager.register(Teller(reporter))
