"""Check the language of docstrings, comments, messages and names, whose faults may only become fewer: `make
check`.

`python -m scripts.prose` compares the faults of each file with scripts/prose.json. A file that is not listed
has none; a listed one has no more faults of any rule than are listed. `--list [RULE]` prints faults;
`--write` records lower counts, and all counts if there is no record.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "scripts" / "prose.json"
FOLDERS: Final = ("bench", "isolator", "marathon_templates", "mesos_gpu", "scripts", "tests", "volumes")
MIN_TEST_NAME_WORDS: Final = 3  # after `test_`
MIN_DOCSTRING_WORDS: Final = 3
MIN_ENTRY_WORDS: Final = 3
#: Kinds of tokens with text; from Python 3.12 on the text of an f-string is a token of its own.
_TEXT: Final = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))

_QUESTION: Final = re.compile(r"(What|Who|Whom|Whose|Which|How|Where|Why|When|Whoever|Whatever|Wherever)\b")
_PRONOUN: Final = re.compile(
    r"(Of|Those|It|Its|One|As|All that|That|These|Them|They|Both|Itself|Likewise|Nobody|Somebody|The same|Same)\b"
)
_ENTRY: Final = re.compile(r"    (\w+)(?: \([^)]*\))?:\s*(.*)")
_SECTION: Final = re.compile(r"(\w+):$")
_ENTRY_PRONOUN: Final = re.compile(
    r"(Of|As|Its?|By|Those|That|One|For|With|From|In|To|All|Likewise|The same)\b"
)
_RIDDLE: Final = re.compile(r"\bNone: ")
_PERSON: Final = re.compile(r"\b(he|him|his|himself|she|her)\b", re.IGNORECASE)
_VAGUE: Final = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whom|anew|is none|mend(s|ed)?|to be had"
    r"|(is|are|was|were|be|been) told|tells? of)\b",
    re.IGNORECASE,
)
_CONSTANT: Final = re.compile(r"_?(MOST|LEAST|LONGEST|FEWEST|SHORTEST)(_|$)")
_TEST: Final = re.compile(
    r"test_(what|who|whom|whose|which|how|where|why|when|it|its|they|them|nobody|somebody|nothing|none|that|those"
    r"|these|this|of|one)_"
)
_TEXT_RULES: Final = {
    "riddle after None": _RIDDLE,
    "person for a thing": _PERSON,
    "vague or archaic word": _VAGUE,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A place whose language breaks a rule."""

    line: int
    rule: str
    text: str


def faults_of(source: str) -> list[Fault]:
    """Return the faults of a module, by line."""
    nodes = list(ast.walk(ast.parse(source)))
    faults = [*_docstring_faults(nodes), *_name_faults(nodes), *_text_faults(source)]
    return sorted(faults, key=lambda fault: (fault.line, fault.rule))


def _docstring_faults(nodes: Iterable[ast.AST]) -> Iterator[Fault]:
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        line, first = getattr(node, "lineno", 1), text.partition("\n")[0]
        if _QUESTION.match(first):
            yield Fault(line, "docstring begins with a question word", first)
        if _PRONOUN.match(first):
            yield Fault(line, "docstring begins with a pronoun", first)
        if text and len(text.split()) < MIN_DOCSTRING_WORDS:
            yield Fault(line, "docstring too short to help", first)
        for name, words in parameters_of(text):
            if _ENTRY_PRONOUN.match(words) or _QUESTION.match(words):
                yield Fault(line, "parameter without a noun", f"{name}: {words}")
            if len(words.split()) < MIN_ENTRY_WORDS:
                yield Fault(line, "parameter explained in few words", f"{name}: {words}")


def parameters_of(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the entries of the sections Args and Attributes."""
    inside = False
    for line in docstring.splitlines():
        if section := _SECTION.match(line):
            inside = section[1] in ("Args", "Attributes")
        elif inside and (entry := _ENTRY.match(line)):
            yield entry[1], entry[2]


def _name_faults(nodes: Iterable[ast.AST]) -> Iterator[Fault]:
    fields = [
        each.target
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
    ]
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                short = len(name.removeprefix("test_").split("_")) < MIN_TEST_NAME_WORDS
                if short or _TEST.match(name):
                    yield Fault(node.lineno, "test name without its subject", name)
            case ast.Name(id=name, ctx=ast.Store()) if _CONSTANT.match(name):
                yield Fault(node.lineno, "constant named MOST_ and not MAX_", name)
            case ast.Name(id="found", ctx=ast.Store()) | ast.arg(arg="found") if node not in fields:
                yield Fault(node.lineno, "variable named found", "found")
            case ast.MatchAs(name="found") | ast.MatchStar(name="found"):
                yield Fault(node.lineno, "variable named found", "found")


def _text_faults(source: str) -> Iterator[Fault]:
    if not any(pattern.search(source) for pattern in _TEXT_RULES.values()):
        return  # nothing that only a tokenizer can place
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _TEXT:
            continue
        for offset, line in enumerate(token.string.splitlines()):
            for rule, pattern in _TEXT_RULES.items():
                for _ in pattern.finditer(line):
                    yield Fault(token.start[0] + offset, rule, line.strip())


def scan(root: Path = ROOT) -> dict[str, list[Fault]]:
    """Return the faults of each module that has any, by path below the root."""
    faults = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if path != Path(__file__) and (own := faults_of(path.read_text(encoding="utf-8"))):
                faults[path.relative_to(root).as_posix()] = own
    return faults


def count(faults: Mapping[str, Iterable[Fault]]) -> dict[str, dict[str, int]]:
    """Count faults by path and rule."""
    return {path: dict(sorted(Counter(fault.rule for fault in own).items())) for path, own in faults.items()}


def compare(faults: Mapping[str, Iterable[Fault]], record: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each count that is above the record, with its places, or below."""
    lines = []
    counts = count(faults)
    for path in sorted({*counts, *record}):
        now, allowed = counts.get(path, {}), record.get(path, {})
        for rule in sorted({*now, *allowed}):
            number, limit = now.get(rule, 0), allowed.get(rule, 0)
            if number > limit:
                lines.append(
                    f"{path}: {rule}: {number}, allowed {limit}; write so that the line is clear alone:"
                )
                lines += [f"  {path}:{each.line}: {each.text}" for each in faults[path] if each.rule == rule]
            elif number < limit:
                lines.append(
                    f"{path}: {rule}: {number}, fewer than {limit}: run python -m scripts.prose --write"
                )
    return lines


def merge(
    counts: Mapping[str, Mapping[str, int]], record: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the record with lower counts taken over; higher counts stay as recorded."""
    lower = {
        path: {
            rule: min(number, limit)
            for rule, limit in rules.items()
            if (number := counts.get(path, {}).get(rule))
        }
        for path, rules in record.items()
    }
    return {path: rules for path, rules in sorted(lower.items()) if rules}


def main(arguments: list[str]) -> int:
    """Run the check; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.prose", description=__doc__)
    parser.add_argument(
        "--list", nargs="?", const="", metavar="RULE", help="print faults, of rules with this text"
    )
    parser.add_argument("--write", action="store_true", help="record counts that have fallen")
    options = parser.parse_args(arguments)
    faults = scan()
    if options.list is not None:
        for path, own in faults.items():
            for fault in own:
                if options.list in fault.rule:
                    print(f"{path}:{fault.line}: {fault.rule}: {fault.text}")
        totals = Counter(fault.rule for own in faults.values() for fault in own)
        print(*(f"{number:6}  {rule}" for rule, number in totals.most_common()), sep="\n")
        return 0
    record = json.loads(RECORD.read_text()) if RECORD.exists() else count(faults)
    if options.write:
        record = merge(count(faults), record)
        lines = [f"{json.dumps(path)}: {json.dumps(rules)}" for path, rules in record.items()]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    lines = compare(faults, record)
    print(*lines[:60], sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
