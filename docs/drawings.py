"""What the site draws: the diagrams of the pages, by Graphviz, and the pictures that `make screenshots` took.

`make docs` writes diagrams in Mermaid's language, which forges draw by themselves. The site must not load a program
from elsewhere, so Graphviz draws the same lines when the site is made. A line that is not of the part of the language
that `make docs` writes is an error.
"""

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.graphviz import graphviz
from sphinx.util.docutils import SphinxDirective

_PICTURES: Final = "build/screenshots"
_ENDS: Final = "[*]"
_WIDTH: Final = 22  # of the words of an arrow
_ATTRIBUTES: Final = (
    'bgcolor="transparent" compound=true fontname="sans-serif" fontsize=11 nodesep=0.35 ranksep=0.45',
    'node [shape=box style="rounded,filled" fillcolor="#e8eef7" color="#7a8796" fontcolor="#1b2733"'
    ' fontname="sans-serif" fontsize=11]',
    'edge [color="#7a8796" fontcolor="#6e7781" fontname="sans-serif" fontsize=10]',
)
_ARROW: Final = re.compile(r"(\S+) --> (\S+?)(?:: (.+))?")
_NAMED: Final = re.compile(r'(\w+)(?:: (.+)|\["(.+)"\])')
_GROUP: Final = re.compile(r'(?:state (\w+) \{|subgraph (\w+)(?: \["(.+)"\])?)')


class NotDrawn(ValueError):
    """A line is not of the part of Mermaid's language that is drawn."""


@dataclass
class _Graph:
    """The lines of a graph for Graphviz, and which node stands for a group where an arrow leads to it."""

    lines: list[str] = field(default_factory=list)
    member: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    inside: set[str] = field(default_factory=set)

    def group(self, name: str, label: str) -> None:
        self.open.append(name)
        self.lines.append(
            f'subgraph "cluster_{name}" {{ label={_quoted(label)} color="#7a8796" style=rounded'
        )
        self.lines.append('fontcolor="#6e7781"')

    def node(self, name: str, label: str | None = None) -> None:
        for group in self.open:
            self.member.setdefault(group, name)
        if label is not None:
            self.lines.append(f"{_quoted(name)} [label={_quoted(label)}]")
        elif self.open and name not in self.inside:
            self.inside.add(name)
            self.lines.append(_quoted(name))

    def arrow(self, old: str, new: str, label: str | None) -> None:
        attributes = [f"label={_quoted(_broken(label))}"] if label else []
        for end, mark, name in ((old, "ltail", "begin"), (new, "lhead", "end")):
            if end in self.member:
                attributes.append(f'{mark}="cluster_{end}"')
            elif end == _ENDS:
                self.lines.append(f'"{name}" [label="" shape=point width=0.12]')
            else:
                self.node(end)
        ends = [
            name if end == _ENDS else self.member.get(end, end)
            for end, name in ((old, "begin"), (new, "end"))
        ]
        self.lines.append(f"{_quoted(ends[0])} -> {_quoted(ends[1])} [{' '.join(attributes)}]")


def _broken(label: str) -> str:
    """The words of an arrow, in short lines."""
    return "<br>".join(f" {line} " for line in textwrap.wrap(label, _WIDTH))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("<br>", "\\n") + '"'


def dot(mermaid: str) -> str:
    """A diagram in the language of Graphviz.

    Raises:
        NotDrawn: A line is not of the part of Mermaid's language that is drawn.
    """
    kind, *lines = [line.strip() for line in mermaid.splitlines() if line.strip()]
    if kind not in ("stateDiagram-v2", "flowchart TD", "flowchart LR"):
        raise NotDrawn(f"no kind of diagram that is drawn: {kind}")
    graph = _Graph()
    for line in lines:
        _add(graph, line)
    if graph.open:
        raise NotDrawn(f"a group that does not end: {graph.open[-1]}")
    turned = ("rankdir=LR",) if kind.endswith("LR") else ()
    return "\n".join(["digraph {", *_ATTRIBUTES, *turned, *graph.lines, "}"])


def _add(graph: _Graph, line: str) -> None:
    if line in ("}", "end") and graph.open:
        graph.open.pop()
        graph.lines.append("}")
    elif arrow := _ARROW.fullmatch(line):
        graph.arrow(arrow[1], arrow[2], arrow[3])
    elif group := _GROUP.fullmatch(line):
        name = group[1] or group[2]
        graph.group(name, group[3] or name)
    elif named := _NAMED.fullmatch(line):
        graph.node(named[1], named[2] or named[3])
    else:
        raise NotDrawn(f"a line that is not drawn: {line}")


class Mermaid(SphinxDirective):
    """A fence of `mermaid`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the node that Graphviz draws."""
        try:
            code = dot("\n".join(self.content))
        except NotDrawn as wrong:
            raise self.error(str(wrong)) from wrong
        node = graphviz()
        node["code"] = code
        node["options"] = {}
        node["alt"] = "diagram: the text above names what it shows"
        return [node]


def pictures(directory: Path, where: str) -> str:
    """A part of a page with each part of the dashboard: light or dark as the page is, and on a phone.

    Args:
        directory: Has PART-light.png, PART-dark.png and PART-phone.png of each part.
        where: The directory's path, as the page names it.
    """
    parts = [path.name.removesuffix("-light.png") for path in directory.glob("*-light.png")]
    parts.sort(key=lambda part: (part != "overview", part))
    lines = ["", "## Pictures", ""] if parts else []
    for part in parts:
        lines += [f"### {part.replace('-', ' ')}", ""]
        for look, kind, width in (
            ("light", "only-light", "100%"),
            ("dark", "only-dark", "100%"),
            ("phone", "phone", "30%"),
        ):
            lines += [f"```{{image}} {where}/{part}-{look}.png", f":alt: {part}, {look}", f":class: {kind}"]
            lines += [f":width: {width}", "```", ""]
    return "\n".join(lines)


def _add_pictures(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "dashboard":
        source[0] += pictures(Path(app.srcdir).parent / _PICTURES, f"../{_PICTURES}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx what is here."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", _add_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
