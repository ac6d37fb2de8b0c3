"""CPU seconds of tests: a budget for each folder and a cap for each test. A plugin of pytest.

A test costs the CPU time from its set-up to its clean-up: of this process and its ended children, and with a cgroup of
its own also of processes that run apart, such as forked schedulers. Fixtures that more than one test uses count for
the folder and not for a test. What falls on a test by chance counts for neither: fixtures of the whole session, whose
end shows the time of forked processes that had left the cgroup, and garbage collections. Seconds are those of the
machine of tests/budget.toml: a short loop that runs beside the tests measures the present speed, so that a slow machine
does not turn a run red.
"""

import contextlib
import gc
import json
import os
import resource
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import median

import pytest
from _pytest.terminal import TerminalReporter

from tests.runner import again, tiers

TESTS = Path(__file__).parents[1]
BUDGET = TESTS / "budget.toml"
TOLERANCE, MIN_TOLERANCE_S = 0.1, 2.0  # above the budget of a folder: the larger of share and seconds
NOISE = 1.5  # factor by which one measurement of a test varies with what runs beside it
ALONE = 3.0  # the factor for a test that is measured once more: it pays for what is used for the first time
MAX_SHOWN = 10
MIN_FILE_S = 3.0  # a file that took longer is listed
SENTENCE = ("<!-- budget -->", "<!-- /budget -->")
COSTS = TESTS.parent / "build" / "test-costs.jsonl"  # of the last run of all tests
GROUP_PREFIX = "mesos-gpu-tests-"  # of names of cgroups, before the pid
_CGROUPS = Path("/sys/fs/cgroup")
_LOOP = 20_000  # rounds of the loop that measures the machine
_LOOP_INTERVAL_S = 5.0
_LOOPS = 7  # whose median counts
_MAX_CLOSINGS = 50


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one test.

    Attributes:
        own_s: Set-up, call and clean-up of the test.
        shared_s: Set-up and end of fixtures of a class, module or package that began or ended with this test.
        wall_s: Seconds that passed, of this machine.
        group: Group of a test that runs on changes alone, which counts for no folder; empty for other tests.
    """

    own_s: float
    shared_s: float = 0.0
    wall_s: float = 0.0
    group: str = ""

    @property
    def all_s(self) -> float:
        """CPU seconds of the test and of the fixtures."""
        return self.own_s + self.shared_s


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
        """Return the cap of a test, by node id; infinite for a folder without a cap."""
        return self.caps_s.get(name.removeprefix("tests/").partition("/")[0], float("inf"))


def read_budget(path: Path = BUDGET) -> Budget:
    """Read a file of budgets."""
    content = tomllib.loads(path.read_text())
    return Budget(content["loop_ms"], content["caps"], content["folders"], content["files"])


@dataclass(slots=True)
class Speed:
    """CPU seconds of the reference machine per CPU second of this one, as lately measured."""

    reference_ms: float
    measured_ms: list[float] = field(default_factory=list)
    measured_at: float = float("-inf")

    def factor(self) -> float:
        """Return the factor. It is measured again after some seconds."""
        if not self.measured_ms:
            self.measured_ms = [loop_ms() for _ in range(_LOOPS - 1)]
        if time.monotonic() - self.measured_at > _LOOP_INTERVAL_S:
            self.measured_ms = [*self.measured_ms, loop_ms()][-_LOOPS:]
            self.measured_at = time.monotonic()
        return self.reference_ms / median(self.measured_ms)


def loop_ms() -> float:
    """Return the CPU milliseconds that a fixed loop takes now."""
    begin = time.thread_time()
    value = 0
    for number in range(_LOOP):
        value = (value * 31 + number) & 0xFFFF
    return (time.thread_time() - begin) * 1000


class Meter:
    """CPU seconds of this process, its ended children and, in a cgroup of its own, of all processes that it started.

    Args:
        name: Name of the cgroup that is made, if it can be made.
        root: Directory of the hierarchies of cgroups.
    """

    def __init__(self, name: str, root: Path = _CGROUPS) -> None:
        """Enter a cgroup."""
        self._group: Path | None = None
        self._total_s = 0.0
        for hierarchy, path in hierarchies(root):
            with contextlib.suppress(OSError):
                group = hierarchy / path / name
                group.mkdir()
                (group / "cgroup.procs").write_text(str(os.getpid()))
                self._group = group
                break
        self._began = self._readings()

    def _readings(self) -> tuple[float, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used), _usage_s(self._group)

    def read_s(self) -> float:
        """Return CPU seconds since the meter began.

        The cgroup misses processes that move to another one, the kernel's account of children those that this process
        does not wait for: the larger sum counts. Sums never fall, so a child is not counted again at its end.
        """
        ended, group = (now - then for now, then in zip(self._readings(), self._began, strict=True))
        self._total_s = max(self._total_s, ended, group)
        return self._total_s

    @property
    def has_group(self) -> bool:
        """Whether processes that run apart are counted."""
        return self._group is not None

    def close(self) -> None:
        """Leave the cgroup and remove it. A group in which processes keep starting others stays."""
        group, self._group = self._group, None
        if group is None:
            return
        for _ in range(_MAX_CLOSINGS):
            try:
                for pid in (group / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        (group.parent / "cgroup.procs").write_text(pid)
                group.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                continue
            return


class Garbage:
    """CPU seconds of garbage collections of this process. Which test they fall on is chance."""

    def __init__(self) -> None:
        """Begin to count."""
        self.used_s = 0.0
        self._began_s = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        now_s = time.thread_time()
        if phase == "start":
            self._began_s = now_s
        else:
            self.used_s += now_s - self._began_s

    def close(self) -> None:
        """End the count."""
        gc.callbacks.remove(self._note)


def hierarchies(root: Path = _CGROUPS) -> Iterator[tuple[Path, str]]:
    """Yield the hierarchies of cgroups that count CPU time, and the path of this process in each."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if "cpuacct" in controllers.split(","):
            yield root / controllers, path.lstrip("/")
        elif not controllers:
            yield (root / "unified" if (root / "unified").is_dir() else root), path.lstrip("/")


def _usage_s(group: Path | None) -> float:
    if group is None:
        return 0.0
    if (usage := group / "cpuacct.usage").exists():
        return int(usage.read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def remove_left_groups(root: Path = _CGROUPS) -> None:
    """Remove the cgroups of processes that died without closing their meter."""
    for hierarchy, path in hierarchies(root):
        for group in (hierarchy / path).glob(f"{GROUP_PREFIX}*"):
            if not Path("/proc", group.name.removeprefix(GROUP_PREFIX)).exists():
                with contextlib.suppress(OSError):  # a process of another run is in it
                    group.rmdir()


class Recorder:
    """The plugin in each process that runs tests."""

    def __init__(self, budget: Budget) -> None:
        """Start to measure."""
        self.costs: dict[str, Cost] = {}
        self._speed = Speed(budget.loop_ms)
        self._meter = Meter(f"{GROUP_PREFIX}{os.getpid()}")
        self._before_s = time.process_time()  # start and imports of this process
        self._fixtures_s: dict[str, float] = defaultdict(float)  # of the present test, by scope
        self._open: list[str] = []  # scopes of the fixtures whose set-up runs
        self._garbage = Garbage()
        self._last_s = 0.0

    @property
    def has_group(self) -> bool:
        """Whether processes that run apart are counted."""
        return self._meter.has_group

    def total_s(self) -> float:
        """Return all CPU seconds of this process and what it started, with collection, of this machine."""
        return self._before_s + self._meter.read_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test."""
        factor, before_s, began_at = self._speed.factor(), self._meter.read_s(), time.monotonic()
        self._fixtures_s, self._last_s = defaultdict(float), before_s
        self._garbage.used_s = 0.0
        try:
            return (yield)
        finally:
            all_s = self._meter.read_s() - before_s
            used_s = self._fixtures_s
            session_s, shared_s = used_s["session"], used_s["package"] + used_s["module"] + used_s["class"]
            self.costs[item.nodeid] = Cost(
                round(max(all_s - shared_s - session_s - self._garbage.used_s, 0.0) * factor, 4),
                round(shared_s * factor, 4),
                round(time.monotonic() - began_at, 3),
                tiers.group_of(item),
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Measure the set-up of a fixture that more than one test uses."""
        self._count(self._open[-1] if self._open else "function")  # a fixture may ask for another one
        self._open.append(fixturedef.scope)
        try:
            return (yield)
        finally:
            self._count(self._open.pop())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """Note the time at which fixtures begin to end."""
        self._last_s = self._meter.read_s()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[object]) -> None:
        """Measure the end of a fixture that more than one test used."""
        self._count(fixturedef.scope)

    def _count(self, scope: str) -> None:
        """Count what was used since the last count for fixtures of a scope."""
        now_s = self._meter.read_s()
        self._fixtures_s[scope] += now_s - self._last_s
        self._last_s = now_s

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Hand the costs to the process with the terminal."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = {name: astuple(cost) for name, cost in self.costs.items()}
            output["total_s"], output["has_group"] = self.total_s(), self.has_group
        try:
            yield
        finally:
            self._meter.close()
            self._garbage.close()


def find_costly(budget: Budget, costs: Mapping[str, Cost], factor: float = NOISE) -> dict[str, str]:
    """Return a text for each test above a multiple of its cap, by node id."""
    return {
        name: f"{cost.own_s:.2f} CPU s, cap {budget.cap_of(name):g}"
        for name, cost in costs.items()
        if not cost.group and cost.own_s > budget.cap_of(name) * factor
    }


def find_faults(budget: Budget, costs: Mapping[str, Cost]) -> list[str]:
    """Return a line for each folder above its budget, and for each test that no folder pays for."""
    faults = [
        f"{name}: no folder of {BUDGET.name} holds it"
        for name, cost in costs.items()
        if not cost.group and not budget.folder_of(name)
    ]
    for folder, sum_s in sums_by_folder(budget, costs).items():
        allowed_s = budget.folders_s[folder]
        if sum_s > allowed_s + max(allowed_s * TOLERANCE, MIN_TOLERANCE_S):
            faults.append(f"tests/{folder}: {sum_s:.1f} CPU s, budget {allowed_s:g} and a tenth")
    return faults


def sums_by_folder(budget: Budget, costs: Mapping[str, Cost]) -> dict[str, float]:
    """Return the CPU seconds of each folder that has a budget and a test in this run."""
    return _sum((budget.folder_of(name), cost.all_s) for name, cost in costs.items() if not cost.group)


def _sum(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the sum of the numbers of each name, sorted by name; what has no name is left out."""
    sums: dict[str, float] = defaultdict(float)
    for name, number in pairs:
        sums[name] += number
    return {name: sums[name] for name in sorted(sums) if name}


def sorted_by_cost(costs: Mapping[str, Cost]) -> list[tuple[str, Cost]]:
    """Return the costs of tests with their node ids, the costliest first."""
    return sorted(costs.items(), key=lambda pair: -pair[1].own_s)


def summary(budget: Budget, costs: Mapping[str, Cost]) -> Iterator[str]:
    """Yield the lines that a run prints at its end: the costliest tests, folders and groups."""
    for name, cost in sorted_by_cost(costs)[:MAX_SHOWN]:
        yield f"{cost.own_s:8.2f} CPU s  {name}"
    for folder, sum_s in sums_by_folder(budget, costs).items():
        yield f"{sum_s:8.1f} CPU s of {budget.folders_s[folder]:g}  tests/{folder}"
    for group, sum_s in _sum((cost.group, cost.all_s) for cost in costs.values()).items():
        yield f"{sum_s:8.1f} CPU s  group {group}"


class Judge:
    """The plugin in the process with the terminal.

    Args:
        reporter: Writer of pytest to the terminal.
        budget: Allowed CPU seconds.
        own: Recorder of this process, if it runs the tests itself.
    """

    def __init__(self, reporter: TerminalReporter, budget: Budget, own: Recorder | None) -> None:
        """Wait for the costs of the processes that run tests."""
        self._reporter, self._budget, self._own = reporter, budget, own
        self._costs: dict[str, Cost] = own.costs if own else {}
        self._faults: list[str] = []
        self._costly: dict[str, str] = {}
        self._total_s, self._has_groups = 0.0, True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the costs of a worker of xdist that has ended."""
        output = getattr(node, "workeroutput", {})
        for name, values in output.get("costs", {}).items():
            self._costs[name] = Cost(*values)
        self._total_s += output.get("total_s", 0.0)
        self._has_groups &= output.get("has_group", False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the costs while the exit status can be changed. A test above its cap is measured once more, alone."""
        if self._own is not None:
            self._total_s, self._has_groups = self._own.total_s(), self._own.has_group
        config = session.config
        if not config.getoption("budget"):
            return
        whole = tiers.is_whole(config)
        self._costly = find_costly(self._budget, self._costs, NOISE if whole else ALONE)
        config.stash[again.COSTLY] = self._costly
        if whole:
            self._faults = find_faults(self._budget, self._costs)
            if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                write_costs(COSTS, self._costs)
        if self._faults:
            again.refuse(config, f"a budget: {self._faults[0]}")
        if (self._faults or self._costly) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self) -> None:
        """Write the costs, and the tests and folders that are above the budget."""
        if path := self._reporter.config.getoption("costs"):
            write_costs(Path(path), self._costs)
        self._reporter.write_sep("=", "CPU seconds")
        for line in summary(self._budget, self._costs):
            self._reporter.write_line(line)
        apart = "" if self._has_groups else ", without processes that ran apart: no cgroup could be made"
        self._reporter.write_line(
            f"{self._total_s:8.1f} CPU s of this machine with collection, {len(self._costs)} tests{apart}"
        )
        for line in (*self._faults, *(f"{name}: {text}" for name, text in self._costly.items())):
            self._reporter.write_line(f"over the budget: {line}", red=True)


def write_costs(path: Path, costs: Mapping[str, Cost]) -> None:
    """Write a line of JSON for each test, the costliest first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps([name, *astuple(cost)]) for name, cost in sorted_by_cost(costs)]
    path.write_text("".join(f"{line}\n" for line in lines))


def read_costs(path: Path) -> dict[str, Cost]:
    """Read what `write_costs` wrote."""
    return {name: Cost(*values) for name, *values in map(json.loads, path.read_text().splitlines())}


def take_over(
    costs: Mapping[str, Cost], budget_file: Path, document: Path, workers: int = 4, tests: Path = TESTS
) -> None:
    """Write the costs of a run as the budget of later runs, and as a sentence of a document.

    Args:
        costs: Costs of all tests of the gate.
        budget_file: File like tests/budget.toml; its head and its caps stay.
        document: Document with a sentence between `SENTENCE` marks.
        workers: Processes of the run, by which the sum of times is divided.
        tests: Folder of all tests.
    """
    gate = {name: cost for name, cost in costs.items() if not cost.group}
    files = _sum(
        (name.partition("::")[0].removeprefix("tests/"), cost.wall_s) for name, cost in costs.items()
    )
    head, _, _ = budget_file.read_text().partition("[folders]")
    lines = ["[folders] # of all tests of the gate; the deepest folder that holds a test counts"]
    old = read_budget(budget_file)
    measured_s = {folder: max(round(sum_s), 1) for folder, sum_s in sums_by_folder(old, gate).items()}
    lines += [f'"{folder}" = {number_s:g}' for folder, number_s in {**old.folders_s, **measured_s}.items()]
    lines += [
        "",
        "[files] # seconds of files that take long or nothing, by which tests/runner/parts.py deals files",
    ]
    # A file whose tests were all left out takes nothing of later runs either.
    names = {path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    listed_s = {name: wall_s for name, wall_s in files.items() if wall_s > MIN_FILE_S}
    listed_s |= dict.fromkeys(names - files.keys(), 0.0)
    lines += [f'"{name}" = {wall_s:.1f}' for name, wall_s in sorted(listed_s.items())]
    budget_file.write_text(head + "\n".join(lines) + "\n")
    cpu_s = sum(cost.all_s for cost in gate.values())
    minutes = max(round(sum(cost.wall_s for cost in gate.values()) / workers / 60), 1)
    sentence = (
        f"`make test` runs {round(len(gate), -2):,} tests in about {minutes} minutes on two processors; "
        f"they need {round(cpu_s, -1):,.0f} CPU seconds."
    )
    begin, end = SENTENCE
    before, _, rest = document.read_text().partition(begin)
    document.write_text(f"{before}{begin}{sentence}{end}{rest.partition(end)[2]}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options of costs."""
    parser.addoption(
        "--budget",
        action="store_true",
        help="fail a run of all tests that exceeds tests/budget.toml; write build/test-costs.jsonl",
    )
    parser.addoption(
        "--costs",
        metavar="FILE",
        help="write a line for each test, costliest first: name, CPU s, CPU s of shared fixtures, s, group",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests, if a run is asked for their costs."""
    if not config.getoption("budget") and not config.getoption("costs"):
        return
    budget = read_budget()
    worker = hasattr(config, "workerinput")
    own = Recorder(budget) if worker or not config.getoption("numprocesses", 0) else None
    if own is not None:
        config.pluginmanager.register(own)
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not worker:
        config.pluginmanager.register(Judge(reporter, budget, own))


if __name__ == "__main__":
    take_over(read_costs(COSTS), BUDGET, TESTS.parent / "docs" / "development.md")
