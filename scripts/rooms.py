"""Draw imports between packages: `python -m scripts.rooms docs/architecture.md` redraws the graphs between
their marks.

A graph shows the packages of a contract of setup.cfg, by their actual imports. An arrow that follows from
others is left out: a package that imports the engine imports the model through it.
"""

import configparser
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
ROOTS: Final = ("mesos_gpu", "isolator", "volumes")
#: Contracts of setup.cfg that are drawn, and the common prefix that is cut off the names.
DRAWN: Final[Mapping[str, str]] = {"layers": "mesos_gpu.", "engine": "mesos_gpu.engine."}
Arrows = dict[str, set[str]]


def rooms(contract: str) -> list[str]:
    """Return the packages that a contract names, from the top."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config[f"importlinter:contract:{contract}"]["layers"].split("\n")
    return [name.strip() for line in lines for name in line.split("|") if name.strip()]


def imports(graph: grimp.ImportGraph, names: Iterable[str]) -> Arrows:
    """Return the imports between these packages."""
    arrows: Arrows = {name: set() for name in names}
    for module in graph.modules:
        own = _room(module, arrows)
        if own is not None:
            others = {_room(each, arrows) for each in graph.find_modules_directly_imported_by(module)}
            arrows[own] |= {each for each in others if each is not None and each != own}
    return arrows


def _room(module: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if module == name or module.startswith(f"{name}.")), None)


def reduced(arrows: Arrows) -> Arrows:
    """Return the arrows without those that follow from others."""
    return {
        name: {
            each for each in others if not any(each in _reached(arrows, other) for other in others - {each})
        }
        for name, others in arrows.items()
    }


def _reached(arrows: Arrows, name: str) -> set[str]:
    seen: set[str] = set()
    edge = [name]
    while edge:
        following = arrows[edge.pop()] - seen
        seen |= following
        edge += following
    return seen


def drawn(contract: str, graph: grimp.ImportGraph) -> str:
    """Draw a contract's packages and their imports, in Mermaid's language."""
    names = rooms(contract)
    arrows = reduced(imports(graph, names))
    lines = ["flowchart TD"]
    short = {name: name.removeprefix(DRAWN[contract]) for name in names}
    for name in names:
        lines += [f"    {short[name]} --> {short[other]}" for other in names if other in arrows[name]]
    return "\n".join(lines)


def rendered(text: str, graph: grimp.ImportGraph) -> str:
    """Return a document with its graphs redrawn between `<!-- imports: NAME -->` and `<!-- end -->`.

    Args:
        text: Text of the document.
        graph: Imports of the packages in `ROOTS`.

    Raises:
        LookupError: The document has no place for a graph.
    """
    for name in DRAWN:
        mark = f"<!-- imports: {name} -->\n"
        before, begin, rest = text.partition(mark)
        _, end, after = rest.partition("<!-- end -->")
        if not (begin and end):
            raise LookupError(f"the document has no place for {mark.strip()}")
        text = f"{before}{mark}```mermaid\n{drawn(name, graph)}\n```\n{end}{after}"
    return text


if __name__ == "__main__":
    DOCUMENT = Path(sys.argv[1])
    GRAPH = grimp.build_graph(*ROOTS, cache_dir=None)
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(encoding="utf-8"), GRAPH), encoding="utf-8")
