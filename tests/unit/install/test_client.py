"""`mesos_gpu[client]`: commands that ask a scheduler do with the few packages that any installation has."""

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest

from mesos_gpu.install.archive import imports
from scripts import locks

ROOT = Path(__file__).parents[3]
OURS = ("isolator", "marathon_templates", "mesos_gpu", "volumes")
#: Packages of commands that a client does not run: of a local cluster, simulations, hosts and a release to upgrade to.
ELSEWHERE = tuple(f"mesos_gpu.cli.{each}" for each in ("demo", "host", "local", "simulate", "upgrade"))
#: `audit --file` reads the record where the scheduler keeps it.
ON_ITS_HOST = {"mesos_gpu.api.v1.audit"}


def modules() -> dict[str, Path]:
    paths = (path for top in OURS for path in (ROOT / top).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def reached() -> Iterator[tuple[str, str]]:
    """Modules that commands of a client import, wherever in a function, with the top name of each of others."""
    known = modules()
    wanted = [name for name in known if name.startswith("mesos_gpu.cli") and not name.startswith(ELSEWHERE)]
    seen = set(wanted)
    while wanted:
        name = wanted.pop()
        for each in imports(known[name].read_text()):
            top = each.partition(".")[0]
            if top not in OURS and top not in sys.stdlib_module_names:
                yield name, top
            if each in known and each not in seen | ON_ITS_HOST and not each.startswith(ELSEWHERE):
                seen.add(each)
                wanted.append(each)


@pytest.fixture(scope="module")
def used() -> set[tuple[str, str]]:
    """Return what `reached` yields."""
    return set(reached())


@pytest.fixture(scope="module")
def distributions_by_module() -> Mapping[str, list[str]]:
    """Return which distributions have a top module."""
    return metadata.packages_distributions()


def test_client_imports_only_packages_that_it_requires(
    used: set[tuple[str, str]], distributions_by_module: Mapping[str, list[str]]
) -> None:
    required = set(locks.needs("mesos_gpu"))
    names = {required_name for name in required for required_name in (name, *locks.needs(name))}
    provided = {
        top
        for top, distributions in distributions_by_module.items()
        if names & {each.lower() for each in distributions}
    }
    assert {(name, top) for name, top in used if top not in provided} == set()
    assert {top for _, top in used} >= {"click", "msgspec", "requests", "rich", "websockets"}


def test_client_requires_only_packages_that_it_imports(
    used: set[tuple[str, str]], distributions_by_module: Mapping[str, list[str]]
) -> None:
    imported = {each.lower() for _, top in used for each in distributions_by_module.get(top, ())}
    # Python's zoneinfo reads it: periods of budgets.
    assert set(locks.needs("mesos_gpu")) - imported == {"tzdata"}


@pytest.mark.usefixtures("used")  # it has parsed the modules
def test_client_command_alone_imports_the_exception() -> None:
    known = modules()
    (importer,) = [
        name for name, path in known.items()
        if name.startswith("mesos_gpu.cli") and ON_ITS_HOST & set(imports(path.read_text()))
    ]  # fmt: skip
    functions = [
        node for node in ast.walk(ast.parse(known[importer].read_text())) if isinstance(node, ast.FunctionDef)
    ]
    inside = [each.name for each in functions if ON_ITS_HOST & set(imports(ast.unparse(each)))]
    assert (importer, len(inside)) == ("mesos_gpu.cli.records.audit", 1)
