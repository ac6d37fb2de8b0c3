"""Second try of tests that failed by the machine's load: a plugin of pytest, and the record that it writes.

The plugin writes the results of a run to the file that `VARIABLE` names. tests/runner/run.py runs the few tests that
failed once more: one after the other, with nothing beside them, in a fresh process, with the same seed. Failures that
load does not cause are final: see `Recorder`.
"""

import gc
import os
import sys
import warnings
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

VARIABLE = "MESOS_GPU_TEST_AGAIN"
#: More tests than these do not fail by bad luck.
MAX = 10
MAX_LINES = 60  # shown of a failure; all of it was shown when it happened
#: Python reports these in whichever test runs when it notices: that one passes the second time, and nothing is mended.
LEAKS = ("ResourceWarning", "PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
#: Digests by group, of the groups that ran whole: tests/runner/tiers.py.
GROUPS = pytest.StashKey[dict[str, str]]()
#: Texts by node id of the tests above their caps: tests/runner/budget.py.
COSTLY = pytest.StashKey[dict[str, str]]()
_REASONS = pytest.StashKey[list[str]]()
_FAILED = pytest.StashKey[bool]()
#: Names in `sys` that pytest sets for debuggers.
_KEPT = ("last_type", "last_value", "last_traceback", "last_exc")


@dataclass(slots=True)
class Record:
    """Results of one run of pytest.

    Attributes:
        failed: Text of the first failure of each failed test, by node id.
        passed: Node ids of tests that passed.
        final: Reasons to have no second try, whatever failed.
        options: Arguments of pytest without files and node ids.
        root: Directory at which node ids begin.
        seed: Seed of pytest-randomly, or None if the order is not random.
        groups: Digests by group, of the groups of tests/tiers.toml that ran whole.
        costly: Text of each test that passed above its cap of CPU seconds, by node id.
    """

    failed: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    final: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    root: str = ""
    seed: int | None = None
    groups: dict[str, str] = field(default_factory=dict)
    costly: dict[str, str] = field(default_factory=dict)

    def refusal(self) -> str:
        """Why the tests that failed have no second try; empty: they have one."""
        if self.final:
            return self.final[0]
        if not self.failed and not self.costly:
            return "no test failed"
        return f"{len(self.failed)} tests failed, more than {MAX}" if len(self.failed) > MAX else ""

    def arguments(self) -> list[str]:
        """Arguments of pytest for the second try: the failed tests alone, in one process."""
        seed = [] if self.seed is None else [f"--randomly-seed={self.seed}"]
        return [
            *self.options,
            "-n0",
            *seed,
            *(f"{self.root}/{name}" for name in {**self.failed, **self.costly}),
        ]

    def still_failed(self, second: "Record") -> list[str]:
        """Node ids that the second try did not see pass: they failed, were skipped, or never ran."""
        wanted = {**self.failed, **self.costly}
        return [
            name for name in wanted if name not in second.passed or name in {**second.failed, **second.costly}
        ]


def read(path: Path) -> Record | None:
    """A run's record; None: pytest ended before it wrote one."""
    return msgspec.json.decode(path.read_bytes(), type=Record) if path.exists() else None


def refuse(config: pytest.Config, why: str) -> None:
    """Leave the run without a second try: it is red for another reason than a test that failed."""
    config.stash.setdefault(_REASONS, []).append(why)


def words(first: Record) -> list[str]:
    """Lines that name each test that passed at the second try, with its first failure."""
    lines = [f"within its cap when measured alone: {name}: {text}" for name, text in first.costly.items()]
    for name, text in first.failed.items():
        failure = text.splitlines()
        cut = ["..."] if len(failure) > MAX_LINES else []
        lines += ["", f"passed at the second try: {name}, which failed with:"]
        lines += [f"    {line}" for line in (*cut, *failure[-MAX_LINES:])]
    if not first.failed:
        return lines
    tests = "1 test" if len(first.failed) == 1 else f"{len(first.failed)} tests"
    return [*lines, "", f"{tests} failed at first and passed at the second try: this run is green"]


class Recorder:
    """The plugin, in the process with the terminal. Some failures are final:

    - in the clean-up of a test: something may be left;
    - of a property (Hypothesis): its other examples say nothing of the one that failed;
    - `LEAKS`;
    - a process that ran tests and died; a file that cannot be collected; a run that did not come to its end.
    """

    def __init__(self, path: Path) -> None:
        """The record is written when pytest ends."""
        self._path, self._record = path, Record()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a result."""
        if report.when == "call" and report.passed:
            self._record.passed.add(report.nodeid)
        if report.failed:
            self._record.failed.setdefault(report.nodeid, report.longreprtext)
            if why := self._final(report):
                self._record.final.append(f"{report.nodeid}: {why}")

    def _final(self, report: pytest.TestReport) -> str:
        if report.when == "teardown":
            return "its clean-up failed"
        if "hypothesis" in report.keywords:
            return "an example breaks its property"
        leaks = [leak for leak in LEAKS if leak in report.longreprtext]
        return f"{leaks[0]}: something is not closed, or a thread died" if leaks else ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take in a file that cannot be collected."""
        if report.failed:
            self._record.final.append(f"{report.nodeid}: cannot be collected")

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Take in a test whose process died, as xdist tells it."""
        self._record.final.append(f"{crashitem}: the process that ran it died")

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Write the record: the end of all plugins' sessions is behind."""
        record, option = self._record, config.option
        if reasons := config.stash.get(_REASONS, None):
            record.final += reasons
        if option.maxfail:
            record.final.append("the run ends at the first failures")
        record.options = [each for each in config.invocation_params.args if each not in option.file_or_dir]
        record.root = str(config.rootpath)
        seed = getattr(option, "randomly_seed", None)
        record.seed = seed if isinstance(seed, int) and config.pluginmanager.has_plugin("randomly") else None
        record.groups = config.stash.get(GROUPS, {})
        record.costly = config.stash.get(COSTLY, {})
        self._path.write_bytes(msgspec.json.encode(record))


def pytest_configure(config: pytest.Config) -> None:
    """Record what this run finds, if it is asked for."""
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark a test that failed."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Free what a failed test has left open in its frames, which else would be counted as leaks of a later test."""
    done = yield
    if item.stash.get(_FAILED, False):
        for name in _KEPT:
            if hasattr(sys, name):
                delattr(sys, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return done
