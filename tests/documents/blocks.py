"""Blocks of the documents: which of them are commands, what they print, and why some cannot run in a test.

A block of `sh` is commands. A block of `console` is commands after `$ `, each followed by what it prints, where `…`
stands for anything. A comment on the lines above a block marks it: `<!-- not run: WHY -->` for one that no test runs,
`<!-- file: NAME -->` for a file that the commands after it use, `<!-- exit: N -->` for a status besides 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: Made from code, or records of decisions: no commands to follow.
OTHERS: Final = ("docs/reference/cli.md", "docs/reference/rights.md")
COMMANDS: Final = ("sh", "console")
_BLOCK: Final = re.compile(r"((?:^<!-- .* -->\n)*)^```(\S*)\n([\s\S]*?)^```$", re.MULTILINE)
_MARK: Final = re.compile(r"<!-- (.*?): (.*) -->")


def documents() -> list[str]:
    """Return the paths of all pages for readers, from the top of the repository."""
    paths = [ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md")]
    return sorted({str(path.relative_to(ROOT)) for path in paths} - set(OTHERS))


@dataclass(frozen=True)
class Command:
    """A line that a reader types, and what stands below it: None if the document does not show what it prints."""

    text: str
    prints: list[str] | None = None


@dataclass(frozen=True)
class Block:
    """A fence of a document with the marks above it."""

    document: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> list[Command]:
        """Commands to type, in order; empty for a block that cannot run or is a file."""
        if self.language not in COMMANDS or {"not run", "file"} & self.marks.keys():
            return []
        return list(_dialogue(self.text) if self.language == "console" else _script(self.text))


def blocks(document: str) -> list[Block]:
    """Return all fences of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Block(
            document,
            text[: each.start()].count("\n") + 1,
            each[2],
            each[3],
            dict(_MARK.findall(each[1])),
        )
        for each in _BLOCK.finditer(text)
    ]


def without_fences(text: str) -> str:
    """Return a document without its fences; its lines keep their numbers."""
    return re.sub(r"(?ms)^```.*?^```", lambda fence: "\n" * fence[0].count("\n"), text)


def _script(text: str) -> Iterator[Command]:
    for line in text.replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s+)# .*$", "", line).strip()
        if plain:
            yield Command(plain)


def _dialogue(text: str) -> Iterator[Command]:
    typed, prints = "", list[str]()
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if typed:
                yield Command(typed, prints)
            typed, prints = line.removeprefix("$ "), []
        else:
            prints.append(line)
    if typed:
        yield Command(typed, prints)


def printed(expected: list[str], output: str) -> bool:
    """Whether a document shows what was printed: `…` is anything, and on a line of its own any lines."""
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        elif line.strip():
            words = (re.escape(word).replace("…", ".*?") for word in line.split())
            pattern += r"\s*" + r"\s+".join(words) + r"[^\S\n]*\n"
    return re.fullmatch(pattern + r"\s*", output + "\n") is not None
