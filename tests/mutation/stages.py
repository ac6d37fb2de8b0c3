"""The choice of tests for a mutant: files of the gate in stages, the most likely to notice it first."""

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TIERS: Final = ("unit", "property", "contract", "kernel")
SIMULATIONS: Final = "tests/unit/simulate/"
DECISIONS: Final = ["tests/property/test_decisions.py"]  # notices most changes of the engine and its policies
#: The last stages of a package, one for each place; files that an earlier stage has had are not run again.
WIDER: Final[Mapping[str, Sequence[str]]] = {
    "mesos_gpu/policy": (
        "tests/unit/policy",
        "tests/unit/tenancy",
        "tests/unit/calendar",
        "tests/unit/engine",
        "tests/unit/wire",
        "tests/property",
    ),
    "mesos_gpu/engine": (
        "tests/unit/engine",
        "tests/unit/tenancy",
        "tests/unit/calendar",
        "tests/unit/scheduler",
        "tests/property",
        "tests/contract/bookings",
        "tests/contract/queues",
        "tests/contract/arrays",
        "tests/contract/usage",
        "tests/contract/marathon",
        "tests/contract/api",
    ),
    "isolator": (
        "tests/unit/isolator",
        "tests/property/hosts",
        "tests/contract/executor",
        "tests/contract/test_gpu_probe.py",
        "tests/kernel",
    ),
}


def imported(text: str) -> Iterator[str]:
    """List the names of all modules that a source may import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@functools.cache
def texts() -> Mapping[str, str]:
    """Return the files of tests that need no cluster, by path."""
    paths = [path for tier in TIERS for path in sorted((ROOT / "tests" / tier).rglob("test_*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


@functools.cache
def imports_of(path: str) -> frozenset[str]:
    """Return the names of all modules that a file of tests may import."""
    return frozenset(imported(texts()[path]))


def importers(module: str) -> list[str]:
    """List the files of tests that import a module."""
    package = module.rpartition(".")[0]
    return [path for path, text in texts().items() if package in text and module in imports_of(path)]


def mirrors(path: str) -> list[str]:
    """Return the nearest folder of tests/unit that has the tests of a module's folder, and one of its last name."""
    folder = Path(path.removeprefix("mesos_gpu/")).parent
    subject = folder.name
    while not (ROOT / "tests/unit" / folder).is_dir():
        folder = folder.parent
    places = ("tests/unit" / folder, Path("tests/unit", subject))
    return [str(place) for place in places if (ROOT / place).is_dir()]


def files(place: str) -> list[str]:
    """List the files of tests of a folder, or the file."""
    if place.endswith(".py"):
        return [place]
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / place).rglob("test_*.py"))]


def stages(path: str) -> list[list[str]]:
    """Choose the files of tests for a module, by stage, none twice; in a stage small files first."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = next(each for each in WIDER if path.startswith(f"{each}/"))
    direct = importers(module)
    near = [name for name in direct if name.startswith("tests/unit/") and not name.startswith(SIMULATIONS)]
    chosen: list[list[str]] = []
    mirrored = [name for place in mirrors(path) for name in files(place)]
    decisions = DECISIONS if path.startswith("mesos_gpu/") else []
    for stage in near, decisions, mirrored, direct, *map(files, WIDER[package]):
        had = {name for each in chosen for name in each}
        fresh = [name for name in dict.fromkeys(stage) if name not in had]
        chosen.append(sorted(fresh, key=lambda name: (ROOT / name).stat().st_size))
    return chosen
