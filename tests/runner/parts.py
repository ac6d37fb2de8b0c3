"""Files of tests dealt among the workers of a run, so that each worker collects its own files alone.

xdist has every worker collect everything, which costs half a minute of CPU per worker. With `--dist each` a worker
runs all that it collects; this plugin of pytest hides the files of the other workers.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.each import EachScheduling

from tests.runner import budget

TESTS = Path(__file__).parents[1]
OTHERS = "files_of_other_workers"  # in the input of a worker
#: Seconds that a line of a file counts, by the first folder, where tests/budget.toml does not list the file.
SECONDS_PER_LINE = {"unit": 0.005, "contract": 0.01, "property": 0.02, "web": 0.05}
DEFAULT_SECONDS_PER_LINE = 0.03
_PARTS = pytest.StashKey[list[list[Path]]]()
_HIDDEN = pytest.StashKey[frozenset[str]]()


def count_workers(processors: int) -> int:
    """Return the number of workers: twice the processors, for tests wait half of their time."""
    return 2 * processors


def list_files(arguments: Iterable[str]) -> list[Path]:
    """List the files of tests below the arguments of pytest."""
    files: set[Path] = set()
    for argument in arguments:
        path = Path(argument.partition("::")[0]).resolve()
        files |= {path} if path.is_file() else set(path.rglob("test_*.py"))
    return sorted(files)


def weigh(path: Path, known_s: Mapping[str, float]) -> float:
    """Return the seconds that a file is expected to take.

    Args:
        path: A file below tests/.
        known_s: Seconds by path below tests/, for files that were measured.
    """
    name = os.path.relpath(path, TESTS)
    if name in known_s:
        return known_s[name]
    per_line = SECONDS_PER_LINE.get(name.partition("/")[0], DEFAULT_SECONDS_PER_LINE)
    return per_line * path.read_bytes().count(b"\n")


def deal(weights: Mapping[Path, float], workers: int) -> list[list[Path]]:
    """Deal files among workers so that all take about as long: the heaviest first, each to the least loaded worker, and
    of these to the one with the fewest files."""
    parts: list[list[Path]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for path in sorted(weights, key=lambda each: (-weights[each], each)):
        least = min(range(workers), key=lambda number: (sums[number], len(parts[number])))
        parts[least].append(path)
        sums[least] += weights[path]
    return parts


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers of a run of folders; 0, which is this process alone, where a file is named."""
    if any(Path(each.partition("::")[0]).is_file() for each in config.args):
        return 0
    return count_workers(len(os.sched_getaffinity(0)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the files of the other workers."""
    config = node.config
    if config.getvalue("dist") != "each":
        return
    if _PARTS not in config.stash:
        known_s = budget.read_budget().files_s
        weights = {path: weigh(path, known_s) for path in list_files(config.args)}
        config.stash[_PARTS] = deal(weights, node.workerinput["workercount"])
    own = int(node.workerinput["workerid"].removeprefix("gw"))
    others = [part for number, part in enumerate(config.stash[_PARTS]) if number != own]
    node.workerinput[OTHERS] = [str(path) for part in others for path in part]


def is_hidden(path: Path, config: pytest.Config) -> bool:
    """Tell whether a file is one of another worker."""
    if _HIDDEN not in config.stash:
        config.stash[_HIDDEN] = frozenset(getattr(config, "workerinput", {}).get(OTHERS, ()))
    return str(path) in config.stash[_HIDDEN]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Hide the files of other workers."""
    return True if is_hidden(collection_path, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Hide the tests of files that were named, which pytest collects in any case."""
    items[:] = [item for item in items if not is_hidden(item.path, config)]


class OwnFiles(EachScheduling):  # type: ignore[misc]
    """Scheduler of xdist for workers with files of their own: the run has the tests of all workers."""

    def schedule(self) -> None:
        """Have each worker run what it has collected."""
        session = self.config.pluginmanager.getplugin("session")
        session.testscollected = sum(len(each) for each in self.node2collection.values())
        super().schedule()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OwnFiles | None:
    """Return the scheduler for `--dist each`."""
    return OwnFiles(config, log) if config.getvalue("dist") == "each" else None
