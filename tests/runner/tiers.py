"""Tiers of tests: which run when. Hooks of pytest, which tests/conftest.py takes in.

- *quick*: folders `unit`, `contract` and `property`, without a cluster and without root: `pytest`.
- *gate*: decides whether a change lands: `make test`; *quick* belongs to it.
- *change*: marked `on_change(group)`; `make test` runs the groups of tests/tiers.toml whose files have changed since
  their tests passed, which tests/passed.toml records by digest.
- *nightly*: marked `long`: `make test-long`, with all of *change*.
- *gpu*: marked `gpu`: `make test-gpu`.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GROUPS, PASSED = TESTS / "tiers.toml", TESTS / "passed.toml"
QUICK = ("unit", "contract", "property")
GATE = (*QUICK, "e2e", "fault", "gpu", "kernel", "web")
PLAIN = "plain"  # in the input of a worker of xdist: whether pytest was called without paths


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test. Raises ValueError if it has none, or two."""
    marked = [tier for tier in ("gpu", "long", "on_change") if item.get_closest_marker(tier)]
    folder = item.path.relative_to(TESTS).parts[0]
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


def digest_of(patterns: Iterable[str], root: Path = ROOT) -> str:
    """Return a digest of the names and contents of the files that match a pattern."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if _counts(path)}):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _counts(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc" and path != PASSED


def digests() -> dict[str, str]:
    """Return the digest of the present files of each group."""
    return {group: digest_of(patterns) for group, patterns in read_groups().items()}


def changed_groups(path: Path = PASSED) -> set[str]:
    """Return the groups whose files are not those with which their tests passed."""
    passed = read_passed(path)
    return {group for group, digest in digests().items() if passed.get(group) != digest}


def write_passed(present: Mapping[str, str], path: Path = PASSED) -> None:
    """Record that the tests of all groups passed with their present files, if the record does not say so."""
    if dict(present) == read_passed(path):
        return
    lines = [
        "# Digests of the files with which the groups passed, written by `make test` and `make test-change`."
    ]
    lines += [f'{group} = "{digest}"' for group, digest in sorted(present.items())]
    path.write_text("\n".join(lines) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses among the tests marked `on_change`."""
    parser.addoption(
        "--changed",
        action="store_true",
        help="of tests marked on_change, run those whose group changed since it passed; record it if all pass",
    )


def is_whole(config: pytest.Config) -> bool:
    """Tell whether a run is one of all folders of tests."""
    return [Path(each).resolve() for each in config.args] == [TESTS]


def is_plain(config: pytest.Config) -> bool:
    """Tell whether pytest was called without paths: the quick tier is wanted."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput[PLAIN])
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that this run is not for."""
    try:
        tiers = {item: tier_of(item) for item in items}
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    plain = is_plain(config)
    wanted = changed_groups() if config.getoption("changed") else set(read_groups())
    left_out = [
        item
        for item in items
        if ((tier := tiers[item]) == "change" and group_of(item) not in wanted)
        or (plain and tier in ("gate", "change"))
    ]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


class Recorder:
    """The plugin of `--changed` in the process with the terminal."""

    def __init__(self, config: pytest.Config) -> None:
        """Take the digests before the tests run: what changes meanwhile was not tested."""
        self._config, self._before, self._changed = config, digests(), changed_groups()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Record that the groups passed."""
        if is_whole(self._config) and exitstatus == pytest.ExitCode.OK:
            write_passed(self._before)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say which groups were left out."""
        if left_out := sorted({*read_groups()} - self._changed):
            terminalreporter.write_line(
                f"left out, for they passed with the present files: {', '.join(left_out)} (tests/tiers.toml)"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Add the recorder, if it is asked for."""
    if config.getoption("changed") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config))
