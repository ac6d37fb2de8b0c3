"""Judgement of skips: a reason that is not in tests/allowed_skips.txt makes a run red. A plugin of pytest.

It judges where everything that the tests need can be had: where `CI` is set, and for root on Debian 12. With
`--some`, a run is red anywhere if all of its tests were skipped.
"""

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from tests.runner import again

ALLOWED = Path(__file__).parents[1] / "allowed_skips.txt"


def judged(environment: Mapping[str, str], uid: int, release: Mapping[str, str]) -> bool:
    """Whether a skip that is not allowed makes the run red; `release` is /etc/os-release."""
    if "CI" in environment:
        return environment["CI"] not in ("", "0", "false")
    return uid == 0 and (release.get("ID"), release.get("VERSION_ID")) == ("debian", "12")


def release_of_host() -> Mapping[str, str]:
    """Return the contents of /etc/os-release; empty if the host has none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def allowed(text: str) -> list[re.Pattern[str]]:
    """The reasons of a list: a regular expression a line; `#` begins a comment, which says why."""
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


class Judge:
    """In the process with the terminal: collects the reasons, and may turn the run red."""

    def __init__(self, reporter: TerminalReporter) -> None:
        """Writes through pytest's own."""
        self._reporter = reporter
        self._allowed = allowed(ALLOWED.read_text())
        self._refused: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at the report of a test that was skipped."""
        self._look(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Look at the report of a file that was skipped whole."""
        self._look(report)

    def _look(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
            return
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if not any(pattern.search(reason) for pattern in self._allowed):
            self._refused.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Here the exit status can still be changed."""
        if self._refused:
            again.refuse(session.config, f"a skip that is not allowed: {self._refused[0]}")
        if self._refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self) -> None:
        """Name them."""
        if self._refused:
            self._reporter.write_sep("=", "skipped, and not in tests/allowed_skips.txt", red=True, bold=True)
            for line in self._refused:
                self._reporter.write_line(line)


class Minimum:
    """The refusal of a run in which no test came to its end: `make test-gpu` on a host without a GPU."""

    def __init__(self, reporter: TerminalReporter) -> None:
        """Wait for the first test that is not skipped."""
        self._reporter, self._ran = reporter, False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that ran."""
        self._ran |= report.when == "call" and not report.skipped

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Change the exit status if all tests were skipped."""
        if not self._ran and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self) -> None:
        """Say that no test ran."""
        if not self._ran:
            self._reporter.write_line("no test ran: all were skipped, for the reasons above", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of runs that must show something."""
    parser.addoption("--some", action="store_true", help="fail a run in which all tests were skipped")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the judges in the process with the terminal."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    if config.getoption("some"):
        config.pluginmanager.register(Minimum(reporter))
    if judged(os.environ, os.geteuid(), release_of_host()):
        config.pluginmanager.register(Judge(reporter))
