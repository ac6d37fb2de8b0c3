"""The import graph has no circle, deferred and type-only imports counted in, and the product imports no test code."""

import configparser
import re
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import grimp
import pytest

from scripts import rooms

ROOT = Path(__file__).parents[2]
PRODUCT = ("mesos_gpu", "isolator", "volumes")
PACKAGES = (*PRODUCT, "bench", "tests")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


@pytest.fixture(scope="module")
def contracts() -> configparser.ConfigParser:
    return read_setup()


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def imports_of(graph: grimp.ImportGraph) -> Mapping[str, set[str]]:
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of one circle in the order of their imports, or an empty list."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]
    return []


def between_children(
    graph: grimp.ImportGraph, package: str, imported_by: Mapping[str, set[str]]
) -> Mapping[str, set[str]]:
    """Return the imports between modules and sub-packages of a package, each with all that is in it."""
    depth = package.count(".") + 2
    imports: dict[str, set[str]] = {child: set() for child in graph.find_children(package)}
    for importer, imported in imported_by.items():
        child = ".".join(importer.split(".")[:depth])
        if child in imports:
            others = {".".join(module.split(".")[:depth]) for module in imported}
            imports[child] |= (others & imports.keys()) - {child}
    return imports


def sub_packages(graph: grimp.ImportGraph) -> list[str]:
    """Return packages within packages, without those of tests."""
    inner = [m for m in graph.modules if "." in m and graph.find_children(m) and not m.startswith("tests.")]
    return sorted(inner)


def test_imports_of_modules_have_no_circle_even_inside_functions(graph: grimp.ImportGraph) -> None:
    assert circle_in(imports_of(graph)) == []


def test_imports_of_sub_packages_have_no_circle(graph: grimp.ImportGraph) -> None:
    imported_by = imports_of(graph)
    for package in {module.rpartition(".")[0] for module in sub_packages(graph)}:
        assert circle_in(between_children(graph, package, imported_by)) == [], package


def test_import_contracts_name_each_sub_package(
    graph: grimp.ImportGraph, contracts: configparser.ConfigParser
) -> None:
    sections = [contracts[name] for name in contracts.sections() if name.startswith("importlinter:contract:")]
    named = {
        module
        for section in sections
        if section["type"] in ("layers", "independence")
        for module in re.findall(r"[\w.]+", section.get("layers", "") + section.get("modules", ""))
    }
    assert [package for package in sub_packages(graph) if package not in named] == []


@pytest.mark.parametrize("deferred", ["def use():\n    from {} import x", "if TYPE_CHECKING:\n    import {}"])
def test_import_circle_hidden_by_a_deferred_import_is_found(
    deferred: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ringed"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from ringed.two import x\n")
    (package / "two.py").write_text(f"from typing import TYPE_CHECKING\n{deferred.format('ringed.one')}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("ringed", cache_dir=None)
    assert set(circle_in(imports_of(graph))) == {"ringed.one", "ringed.two"}


def test_import_graphs_of_documents_are_those_of_the_code(graph: grimp.ImportGraph) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    other = text.replace("    cli --> local\n", "")
    assert other != text
    assert rooms.rendered(other, graph) == text, "run: make docs"


def test_import_graphs_leave_out_arrows_that_follow_from_others() -> None:
    assert rooms.reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}) == {
        "a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()
    }  # fmt: skip


#: A reference to test code: an import, or the name of a module as text, as in tables of commands.
TEST_CODE = re.compile(
    r"^\s*(?:from|import) (?:bench|scripts|tests|pytest|hypothesis)\b|[\"'](?:bench|tests)\.\w+", re.MULTILINE
)


@pytest.mark.parametrize(
    "text", ["from tests.doubles import images", "    import bench.api", '("bench.commands", "Measure.")']
)
def test_reference_to_test_code_is_found(text: str) -> None:
    assert TEST_CODE.search(f"x = 1\n{text}\n")


def test_product_has_no_reference_to_test_code(sources: dict[Path, str]) -> None:
    product = {path: text for path, text in sources.items() if path.relative_to(ROOT).parts[0] in PRODUCT}
    assert [str(path) for path, text in product.items() if TEST_CODE.search(text)] == []


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    """Read all modules, which takes longer than the tests of them."""
    paths = [path for folder in (*PACKAGES, "docs", "scripts") for path in (ROOT / folder).rglob("*.py")]
    return {path: path.read_text() for path in paths}


def entry_points() -> list[str]:
    lines = read_setup()["options.entry_points"]["console_scripts"].split("\n")
    return [line.partition("=")[2].strip() for line in lines if line]


def test_console_scripts_name_functions_that_exist() -> None:
    assert entry_points()
    for entry_point in entry_points():
        module, _, name = entry_point.partition(":")
        function: Callable[[], object] = getattr(import_module(module), name)
        assert callable(function), entry_point


def test_modules_named_after_python_m_exist(graph: grimp.ImportGraph, sources: dict[Path, str]) -> None:
    files = [ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *ROOT.glob("scripts/*.sh")]
    named = {
        module
        for text in (*sources.values(), *(path.read_text() for path in files))
        for module in re.findall(r"-m ((?:mesos_gpu|isolator|volumes|bench|tests)(?:\.\w+)*)", text)
    }
    assert {"bench", "tests.chaos", "tests.runner.run"} <= named
    assert {module for module in named if module not in graph.modules} == set()
