"""CPU seconds of tests: a budget for each folder and a cap for each test. A plugin of pytest.

A test costs what its process and ended children compute from its set-up to its clean-up, and with a cgroup of its
own also what runs apart: forked schedulers, daemons. Fixtures of a module or of the session count for the folder and
not for the test that asks first. Seconds are those of the machine of tests/budget.toml: a short loop that runs beside
the tests says how fast this machine is now, so that a slow machine does not turn a run red.
"""

import contextlib
import json
import os
import resource
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import median

import pytest
from _pytest.terminal import TerminalReporter

from tests.runner import again, tiers

TESTS = Path(__file__).parents[1]
BUDGET = TESTS / "budget.toml"
TOLERANCE = 1.1
MAX_SHOWN = 10
MIN_FILE_S = 3.0  # a file that took longer is listed
SENTENCE = ("<!-- budget -->", "<!-- /budget -->")
_CPUACCT = Path("/sys/fs/cgroup/cpuacct")
_LOOP = 20_000  # rounds of the loop that measures the machine
_LOOP_INTERVAL_S = 5.0  # of CPU
_KEPT_LOOPS = 7


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one test.

    Attributes:
        own_s: Set-up, call and clean-up of the test.
        shared_s: Set-up of fixtures of a wider scope that this test asked for first.
        wall_s: Seconds that passed, of this machine.
        group: Group of a test that runs on changes alone, which counts for no folder; empty for other tests.
    """

    own_s: float
    shared_s: float = 0.0
    wall_s: float = 0.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """The contents of tests/budget.toml.

    Attributes:
        loop_ms: CPU milliseconds of the loop of `Speed` on the machine of the figures.
        caps_s: CPU seconds of one test, by the first folder below tests/.
        folders_s: CPU seconds of all tests of the gate, by folder below tests/; the deepest that holds a test counts.
        files_s: Seconds of the files that take long, by path below tests/.
    """

    loop_ms: float
    caps_s: Mapping[str, float]
    folders_s: Mapping[str, float]
    files_s: Mapping[str, float]

    def folder_of(self, name: str) -> str:
        """Return the folder whose budget pays for a test, by node id; empty if there is none."""
        path = name.partition("::")[0].removeprefix("tests/")
        holders = [folder for folder in self.folders_s if path.startswith(f"{folder}/")]
        return max(holders, key=len, default="")

    def cap_of(self, name: str) -> float:
        """Return the cap of a test, by node id."""
        return self.caps_s[name.removeprefix("tests/").partition("/")[0]]


def read_budget(path: Path = BUDGET) -> Budget:
    """Read a file of budgets."""
    content = tomllib.loads(path.read_text())
    return Budget(content["loop_ms"], content["caps"], content["folders"], content["files"])


@dataclass(slots=True)
class Speed:
    """CPU seconds of the reference machine per CPU second of this one, as lately measured."""

    loop_ms: float
    measured_ms: list[float] = field(default_factory=list)
    measured_at: float = float("-inf")

    def factor(self) -> float:
        """Return the factor; measure it where the last time is long ago."""
        now = time.process_time()
        if now - self.measured_at > _LOOP_INTERVAL_S:
            self.measured_ms = [*self.measured_ms, loop_ms()][-_KEPT_LOOPS:]
            self.measured_at = now
        return self.loop_ms / median(self.measured_ms)


def loop_ms() -> float:
    """Return the CPU milliseconds that a fixed loop takes now."""
    begin = time.thread_time()
    value = 0
    for number in range(_LOOP):
        value = (value * 31 + number) & 0xFFFF
    return (time.thread_time() - begin) * 1000


class Meter:
    """CPU seconds of this process, its ended children and, for root on cgroup v1, of all that it started.

    Args:
        name: Name of the cgroup that is made.
        root: Hierarchy that counts CPU time.
    """

    def __init__(self, name: str, root: Path = _CPUACCT) -> None:
        """Enter a cgroup of this process, if one can be made."""
        self._usage: Path | None = None
        self._group = root / name
        with contextlib.suppress(OSError):
            self._parent = root / _own_group(root.name)
            self._group = self._parent / name
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
            self._usage = self._group / "cpuacct.usage"

    def read_s(self) -> tuple[float, float]:
        """Return CPU seconds of process and ended children, and of the cgroup; the second is 0 without a cgroup."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        mine = sum(each.ru_utime + each.ru_stime for each in used)
        return mine, int(self._usage.read_text()) / 1e9 if self._usage else 0.0

    def close(self) -> None:
        """Leave the cgroup and remove it."""
        if self._usage is not None:
            for pid in (self._group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (self._parent / "cgroup.procs").write_text(pid)
            self._group.rmdir()
            self._usage = None


def _own_group(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path.lstrip("/")
    raise FileNotFoundError(f"this process is in no cgroup of {controller}")


def spent_s(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the CPU seconds between two readings of a `Meter`: a cgroup misses what leaves it, the process what it
    does not wait for."""
    return max(after[0] - before[0], after[1] - before[1])


class Recorder:
    """The plugin in each process that runs tests."""

    def __init__(self, budget: Budget) -> None:
        """Start to measure."""
        self.costs: dict[str, Cost] = {}
        self._speed = Speed(budget.loop_ms)
        self._meter = Meter(f"mesos-gpu-tests-{os.getpid()}")
        self._shared_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test."""
        factor, self._shared_s, before = self._speed.factor(), 0.0, self._meter.read_s()
        began_at = time.monotonic()
        try:
            return (yield)
        finally:
            all_s = spent_s(before, self._meter.read_s())
            self.costs[item.nodeid] = Cost(
                round(max(all_s - self._shared_s, 0.0) * factor, 4),
                round(self._shared_s * factor, 4),
                round(time.monotonic() - began_at, 3),
                tiers.group_of(item),
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Measure the set-up of a fixture that more than one test uses."""
        if fixturedef.scope == "function":
            return (yield)
        before, nested_s = self._meter.read_s(), self._shared_s
        try:
            return (yield)
        finally:
            self._shared_s = nested_s + spent_s(before, self._meter.read_s())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Hand the costs to the process with the terminal."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = {name: astuple(cost) for name, cost in self.costs.items()}
        try:
            yield
        finally:
            self._meter.close()


def find_faults(budget: Budget, costs: Mapping[str, Cost]) -> list[str]:
    """Return a line for each test above its cap and for each folder above its budget."""
    faults = []
    for name, cost in costs.items():
        if cost.group:
            continue
        if cost.own_s > budget.cap_of(name):
            faults.append(f"{name}: {cost.own_s:.2f} CPU s, cap {budget.cap_of(name):g}")
        if not budget.folder_of(name):
            faults.append(f"{name}: no folder of {BUDGET.name} holds it")
    for folder, sum_s in sums_by_folder(budget, costs).items():
        if sum_s > budget.folders_s[folder] * TOLERANCE:
            faults.append(
                f"tests/{folder}: {sum_s:.1f} CPU s, budget {budget.folders_s[folder]:g} and a tenth"
            )
    return faults


def sums_by_folder(budget: Budget, costs: Mapping[str, Cost]) -> dict[str, float]:
    """Return the CPU seconds of each folder that has a budget and a test in this run."""
    sums: dict[str, float] = defaultdict(float)
    for name, cost in costs.items():
        if not cost.group and (folder := budget.folder_of(name)):
            sums[folder] += cost.own_s + cost.shared_s
    return dict(sorted(sums.items()))


def summary(budget: Budget, costs: Mapping[str, Cost]) -> Iterable[str]:
    """Yield the lines that a run prints at its end: the dearest tests, and each folder."""
    for name, cost in sorted(costs.items(), key=lambda pair: -pair[1].own_s)[:MAX_SHOWN]:
        yield f"{cost.own_s:8.2f} CPU s  {name}"
    for folder, sum_s in sums_by_folder(budget, costs).items():
        yield f"{sum_s:8.1f} CPU s of {budget.folders_s[folder]:g}  tests/{folder}"
    yield f"{sum(cost.own_s + cost.shared_s for cost in costs.values()):8.1f} CPU s, {len(costs)} tests"


class Judge:
    """The plugin in the process with the terminal.

    Args:
        reporter: pytest's writer to the terminal.
        budget: Allowed CPU seconds.
        own: Recorder of this process, if it runs the tests itself.
        binding: Whether costs above the budget turn the run red.
    """

    def __init__(
        self, reporter: TerminalReporter, budget: Budget, own: Recorder | None, binding: bool
    ) -> None:
        """Wait for the costs of the processes that run tests."""
        self._reporter, self._budget, self._binding = reporter, budget, binding
        self._costs: dict[str, Cost] = own.costs if own else {}
        self._faults: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the costs of a worker of xdist that has ended."""
        for name, values in getattr(node, "workeroutput", {}).get("costs", {}).items():
            self._costs[name] = Cost(*values)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Change the exit status while it can be changed."""
        self._faults = find_faults(self._budget, self._costs) if self._binding else []
        if self._faults:
            again.refuse(session.config, f"a budget: {self._faults[0]}")
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self) -> None:
        """Write the costs, and what is above the budget."""
        if path := self._reporter.config.getoption("costs"):
            write_costs(Path(path), self._costs)
        self._reporter.write_sep("=", "CPU seconds")
        for line in summary(self._budget, self._costs):
            self._reporter.write_line(line)
        for line in self._faults:
            self._reporter.write_line(f"over the budget: {line}", red=True)


def write_costs(path: Path, costs: Mapping[str, Cost]) -> None:
    """Write a line of JSON for each test, the dearest first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dearest = sorted(costs.items(), key=lambda pair: -pair[1].own_s)
    path.write_text("".join(f"{json.dumps([name, *astuple(cost)])}\n" for name, cost in dearest))


def read_costs(path: Path) -> dict[str, Cost]:
    """Read what `write_costs` wrote."""
    return {name: Cost(*values) for name, *values in map(json.loads, path.read_text().splitlines())}


def take_over(costs: Mapping[str, Cost], budget_file: Path, document: Path, workers: int = 3) -> None:
    """Write the costs of a run as the budget of later runs, and the sentence of a document that tells them.

    Args:
        costs: Costs of all tests of the gate.
        budget_file: File like tests/budget.toml; its head and its caps stay.
        document: Document with a sentence between `SENTENCE` marks.
        workers: Processes of the run.
    """
    gate = {name: cost for name, cost in costs.items() if not cost.group}
    files: dict[str, float] = defaultdict(float)
    for name, cost in costs.items():
        files[name.partition("::")[0].removeprefix("tests/")] += cost.wall_s
    head, _, _ = budget_file.read_text().partition("[folders]")
    lines = ["[folders] # of all tests of the gate; the deepest folder that holds a test counts"]
    sums = sums_by_folder(read_budget(budget_file), gate)
    lines += [f'"{folder}" = {max(round(sum_s), 1)}' for folder, sum_s in sums.items()]
    lines += [
        "",
        "[files] # seconds of those that take longest, by which tests/runner/parts.py deals files among workers",
    ]
    lines += [f'"{name}" = {wall_s:.1f}' for name, wall_s in sorted(files.items()) if wall_s > MIN_FILE_S]
    budget_file.write_text(head + "\n".join(lines) + "\n")
    cpu_s = sum(cost.own_s + cost.shared_s for cost in gate.values())
    minutes = max(round(sum(files.values()) / workers / 60), 1)
    sentence = (
        f"`make test` runs {round(len(gate), -2):,} tests in about {minutes} minutes on two processors; "
        f"they need {round(cpu_s, -1):,.0f} CPU seconds."
    )
    begin, end = SENTENCE
    before, _, rest = document.read_text().partition(begin)
    document.write_text(f"{before}{begin}{sentence}{end}{rest.partition(end)[2]}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes budgets binding."""
    parser.addoption(
        "--budget", action="store_true", help="fail the run where CPU seconds exceed tests/budget.toml"
    )
    parser.addoption(
        "--costs", metavar="FILE", help="write test, CPU s, CPU s of shared fixtures, s; dearest first"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add what this process needs."""
    budget = read_budget()
    worker = hasattr(config, "workerinput")
    own = Recorder(budget) if worker or not config.getoption("numprocesses", 0) else None
    if own is not None:
        config.pluginmanager.register(own)
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not worker:
        config.pluginmanager.register(
            Judge(reporter, budget, own, config.getoption("budget") and tiers.is_whole(config))
        )


if __name__ == "__main__":
    take_over(read_costs(Path(sys.argv[1])), BUDGET, TESTS.parent / "docs" / "development.md")
