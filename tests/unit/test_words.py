"""Words: locals say what they are, docstrings begin with a verb or a noun, tests are named by their claim."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

NEITHER_VERB_NOR_NOUN = re.compile(r"(Of|Those|It|Its|One|The same|Same|As)\b")
GIVING = (ast.arg, ast.Name, ast.MatchAs, ast.MatchStar)
FEWEST_WORDS = 3  # of a test's name, after `test_`


def sources() -> Iterator[tuple[str, list[ast.AST]]]:
    """The nodes of all modules, by their paths."""
    for top in ("mesos_gpu", "isolator", "volumes", "tests"):
        for path in sorted(Path(ROOT, top).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), nodes_of(path.read_text(encoding="utf-8"))


def nodes_of(text: str) -> list[ast.AST]:
    """All that a module is made of."""
    return list(ast.walk(ast.parse(text)))


def names_given(node: ast.AST) -> set[str]:
    """The names that an argument, an assignment, a loop or a pattern gives to something."""
    match node:
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return {name}
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case _:
            return set()


def empty_words(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """What is wrong with a module's words, with the line of each."""
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    fields = [each.target for node in classes for each in node.body if isinstance(each, ast.AnnAssign)]
    for node in nodes:
        if (
            isinstance(node, GIVING) and "found" in names_given(node) and node not in fields
        ):  # journals have the names of fields
            yield f"{getattr(node, 'lineno', 0)}: 'found' says nothing of what it is"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            doc = ast.get_docstring(node) or ""
            if NEITHER_VERB_NOR_NOUN.match(doc):
                yield f"{getattr(node, 'lineno', 1)}: {doc.splitlines()[0]}"


def short_test_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Tests whose name does not say what they claim, with the line of each."""
    for node in nodes:
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""
        if name.startswith("test_") and len(name.removeprefix("test_").split("_")) < FEWEST_WORDS:
            yield f"{getattr(node, 'lineno', 0)}: {name} does not say what is claimed"


def test_locals_docstrings_and_names_of_tests_say_what_they_are() -> None:
    wrong = [
        f"{name}:{words}"
        for name, nodes in sources()  # some hundred files, read once
        for words in (*empty_words(nodes), *short_test_names(nodes))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "def f(found): ...",
        "for found in (): ...",
        "x = [found for found in ()]",
        "match x:\n    case [found]: ...",
        'def f():\n    """Of it."""',
        '"""As `other`."""',
    ],
)
def test_an_empty_word_is_seen(text: str) -> None:
    assert len(list(empty_words(nodes_of(text)))) == 1


def test_a_short_name_is_seen() -> None:
    assert list(short_test_names(nodes_of("def test_two_words(): ...")))
    assert not list(short_test_names(nodes_of("def test_these_are_three(): ...")))
