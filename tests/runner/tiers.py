"""Tiers of tests: which run when. A plugin of pytest.

- *quick*: folders `unit`, `contract` and `property`, without a cluster and without the kernel's cgroups: `pytest`.
- *gate*: decides whether a change lands: `make test`; *quick* belongs to it.
- *change*: marked `on_change(group)`; `make test` runs the groups of tests/tiers.toml whose files have changed since
  their tests passed, which tests/passed.toml records by digest.
- *nightly*: marked `long`: `make test-long`, with all of *change*.
- *gpu*: marked `gpu`: `make test-gpu`.
"""

import hashlib
import os
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.runner import again, skips

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GROUPS, PASSED = TESTS / "tiers.toml", TESTS / "passed.toml"
QUICK = ("unit", "contract", "property")
GATE = (*QUICK, "e2e", "fault", "gpu", "kernel", "web")
#: In the input of a worker of xdist: whether pytest was called without paths; groups to run.
PLAIN, WANTED = "plain", "wanted"
_GROUP = "group"  # property of a report
_FAULT = pytest.StashKey[str]()
#: Options of pytest that leave tests out.
_FILTERS = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "maxfail")


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test. Raises ValueError if it has none, or two, or if its name differs in each process."""
    if " at 0x" in item.nodeid:
        raise ValueError(f"{item.nodeid} has an address in its name: give its parameters ids")
    marked = [tier for tier in ("gpu", "long", "on_change") if item.get_closest_marker(tier)]
    if len(marked) > 1 and "long" not in marked:
        raise ValueError(f"{item.nodeid} is marked {' and '.join(marked)}: mark it once")
    if (group := group_of(item)) and group not in read_groups():
        raise ValueError(
            f"{item.nodeid} is of group {group}: tests/tiers.toml has {', '.join(read_groups())}"
        )
    if "long" in marked:
        return "nightly"
    if marked:
        return {"gpu": "gpu", "on_change": "change"}[marked[0]]
    folder = item.path.relative_to(TESTS).parts[0]
    if folder not in GATE:
        raise ValueError(
            f"{item.nodeid} is in no folder of the gate ({', '.join(GATE)}): mark it gpu or long"
        )
    apart = item.get_closest_marker("cluster") or item.get_closest_marker("kernel")
    return "quick" if folder in QUICK and not apart else "gate"


def group_of(item: pytest.Item) -> str:
    """Return the group of a test that runs on changes; empty if it does not."""
    mark = item.get_closest_marker("on_change")
    return mark.args[0] if mark else ""


@cache
def read_groups(path: Path = GROUPS) -> Mapping[str, Sequence[str]]:
    """Read the patterns of files of each group."""
    return {name: group["files"] for name, group in tomllib.loads(path.read_text()).items()}


def read_passed(path: Path = PASSED) -> Mapping[str, str]:
    """Read the digest of the files with which each group passed; none are known without the file."""
    return tomllib.loads(path.read_text()) if path.exists() else {}


def list_kept(root: Path = ROOT) -> set[Path] | None:
    """List the files of a checkout that git has or would add; None if git does not know the checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return {root / name for name in out.split("\0")}


def digest_of(patterns: Iterable[str], root: Path = ROOT, kept: Collection[Path] | None = None) -> str:
    """Return a digest of the names and contents of the files that match a pattern.

    Args:
        patterns: Patterns of paths below the root.
        root: Top directory of the checkout.
        kept: Files that count, or None if all do but compiled ones.
    """
    total = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        if path.is_file() and path.suffix != ".pyc" and (kept is None or path in kept):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def digests() -> dict[str, str]:
    """Return the digest of the present files of each group."""
    kept = list_kept()
    return {group: digest_of(patterns, kept=kept) for group, patterns in read_groups().items()}


def changed_groups(present: Mapping[str, str], path: Path = PASSED) -> list[str]:
    """Return the groups whose files are not those with which their tests passed.

    Args:
        present: Digest of the present files of each group.
        path: File like tests/passed.toml.
    """
    passed = read_passed(path)
    return sorted(group for group, digest in present.items() if passed.get(group) != digest)


def record_passed(groups: Mapping[str, str], path: Path = PASSED) -> None:
    """Record that groups passed with files of these digests, if the record does not say so. Other groups stay."""
    old = read_passed(path)
    new = {group: digest for group, digest in {**old, **groups}.items() if group in read_groups()}
    if new == old:
        return
    lines = [
        "# Digests of the files with which the groups passed, written by `make test` and `make test-change`."
    ]
    lines += [f'{group} = "{digest}"' for group, digest in sorted(new.items())]
    path.write_text("\n".join(lines) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses among the tests marked `on_change`."""
    parser.addoption(
        "--changed",
        action="store_true",
        help="of tests marked on_change, run those whose group changed since it passed, and report which passed",
    )


def is_whole(config: pytest.Config) -> bool:
    """Tell whether a run is one of all folders of tests, of which no option leaves any out."""
    unfiltered = not any(getattr(config.option, name, None) for name in _FILTERS)
    return unfiltered and [Path(each).resolve() for each in config.args] == [TESTS]


def is_plain(config: pytest.Config) -> bool:
    """Tell whether pytest was called without paths: the quick tier is wanted."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput[PLAIN])
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def wanted_groups(config: pytest.Config) -> list[str]:
    """Return the groups whose tests run."""
    if not config.getoption("changed"):
        return [*read_groups()]
    if hasattr(config, "workerinput"):
        return [*config.workerinput[WANTED]]
    recorder = config.pluginmanager.getplugin(Recorder.__name__)
    return [*recorder.wanted]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what to run."""
    node.workerinput[PLAIN] = is_plain(node.config)
    node.workerinput[WANTED] = wanted_groups(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that this run is not for. A test without a tier fails."""
    plain, wanted = is_plain(config), wanted_groups(config)
    left_out = set()
    for item in items:
        try:
            tier = tier_of(item)
        except ValueError as error:
            item.stash[_FAULT] = str(error)
            continue
        group = group_of(item)
        if (tier == "change" and group not in wanted) or (plain and tier in ("gate", "change")):
            left_out.add(item)
        if group:
            item.user_properties.append((_GROUP, group))
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test without a tier."""
    if fault := item.stash.get(_FAULT, ""):
        pytest.fail(fault, pytrace=False)


class Recorder:
    """The plugin of `--changed` in the process with the terminal."""

    def __init__(self) -> None:
        """Take the digests before the tests run: a change of a file meanwhile was not tested."""
        self._present = digests()
        self.wanted = changed_groups(self._present)
        self._outcomes: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test of a group."""
        for name, group in report.user_properties:
            if name == _GROUP and (report.when == "call" or not report.passed):
                self._outcomes[str(group)].add(report.outcome)

    def complete(self, judged: bool) -> dict[str, str]:
        """Return the digests of the groups whose tests ran.

        Args:
            judged: Whether a skip that is not allowed makes the run red.
        """
        return {
            group: self._present[group]
            for group in self.wanted
            if "passed" in self._outcomes[group] and (judged or "skipped" not in self._outcomes[group])
        }

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the groups to the runner, which records them if the run is green at its end. No test to run is green
        where no group has changed."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not self.wanted:
            session.exitstatus = pytest.ExitCode.OK
        if is_whole(session.config):
            judged = skips.judged(os.environ, os.geteuid(), skips.release_of_host())
            session.config.stash[again.GROUPS] = self.complete(judged)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say which groups were left out."""
        if left_out := sorted({*self._present} - {*self.wanted}):
            names = ", ".join(left_out)
            terminalreporter.write_line(
                f"left out, for they passed with the present files: {names} (tests/tiers.toml)"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Add the recorder, if it is asked for."""
    if config.getoption("changed") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), Recorder.__name__)
