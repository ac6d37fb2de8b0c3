"""Commands in documents: each block runs in a test or says why not, and each command that a sentence names is there."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import click
import pytest

from mesos_gpu.cli import main
from mesos_gpu.cli.reference import root_context
from tests.documents.blocks import COMMANDS, ROOT, Block, Command, blocks, documents, printed

MARKS = {"not run", "file", "exit", "life cycle", "imports"}
FEWEST = 15  # letters of a reason
#: What a line of a terminal begins with.
TYPED = re.compile(r"^(\$ |(sudo )?(mesos-gpu|curl|make|pip|systemctl) )", re.MULTILINE)


@pytest.mark.parametrize("document", documents())
def test_blocks_with_commands_say_so(document: str) -> None:
    """A test runs blocks of `sh` and `console`: in another one a command could hide from it."""
    hidden = [
        f"{document}:{block.line}"
        for block in blocks(document)
        if block.language not in COMMANDS and "file" not in block.marks and TYPED.search(block.text)
    ]
    assert hidden == [], "write ```sh or ```console, and <!-- not run: WHY --> above it if it cannot run"


@pytest.mark.parametrize("document", documents())
def test_marks_are_known_and_give_reasons(document: str) -> None:
    for block in blocks(document):
        assert block.marks.keys() <= MARKS, f"{document}:{block.line}"
        assert len(block.marks.get("not run", "x" * FEWEST)) >= FEWEST, f"{document}:{block.line}: why?"
        if block.language == "console" and "not run" not in block.marks:
            assert block.commands, f"{document}:{block.line}: no line begins with `$ `"


@pytest.mark.parametrize("document", documents())
def test_tests_that_reasons_name_are_there(document: str) -> None:
    named = [
        name
        for block in blocks(document)
        for name in re.findall(r"tests/[\w/]+(?:\.py)?", block.marks.get("not run", ""))
    ]
    assert [name for name in named if not (ROOT / name).exists()] == []


# --- commands in sentences and tables

NAMED = re.compile(r"`mesos-gpu ([^`]+)`")


def unknown(words: str) -> str:
    """The first word of a command that there is not: `audit --sinc` gives `--sinc`; empty if all is there."""
    context = root_context()
    command: click.Command = main
    options = _options(main)
    tokens = iter(shlex.split(words.replace("…", " ")))
    for token in tokens:
        if token == "--" or command.context_settings.get(
            "ignore_unknown_options"
        ):  # the rest is of another program
            break
        if re.match(r"-[^\d]", token):
            name, _, value = token.partition("=")
            if name not in options and not _short(name, options):
                return token
            if options.get(name, False) and not value:
                next(tokens, None)
        elif isinstance(command, click.Group):
            inner = [command.get_command(context, each) for each in token.split("|")]
            if inner[0] is None or None in inner:
                return token
            command = inner[0]
            options |= _options(command)
    return ""


def _options(command: click.Command) -> dict[str, bool]:
    """Names of a command's options, and whether each takes a value."""
    takes = {"-h": False, "--help": False}
    for each in command.params:
        if isinstance(each, click.Option):
            takes |= dict.fromkeys((*each.opts, *each.secondary_opts), not (each.is_flag or each.count))
    return takes


def _short(name: str, options: dict[str, bool]) -> bool:
    """Several letters at once, as -it."""
    return not name.startswith("--") and all(f"-{letter}" in options for letter in name[1:])


def named(document: str) -> Iterator[str]:
    text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / document).read_text(encoding="utf-8"))
    yield from (words.replace("\n", " ") for words in NAMED.findall(text))


@pytest.mark.parametrize("document", documents())
def test_commands_that_a_sentence_names_are_there(document: str) -> None:
    wrong = {words: unknown(words) for words in named(document) if unknown(words)}
    assert wrong == {}


@pytest.mark.parametrize("document", documents())
def test_commands_that_no_test_runs_are_there(document: str) -> None:
    kept = [replace(each, marks={}) for each in blocks(document) if "not run" in each.marks]
    every = [words for block in kept for command in block.commands for words in ours(command.text)]
    assert {words: unknown(words) for words in every if unknown(words)} == {}


def ours(line: str) -> Iterator[str]:
    """What follows `mesos-gpu` in each command of a line of a shell."""
    tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
    for is_separator, words in groupby(tokens, lambda token: set(token) <= set("|;&()<>\n")):
        name, *rest = words
        if not is_separator and name == "mesos-gpu":
            yield shlex.join(rest)


def test_examples_of_the_help_are_of_commands_that_there_are() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^ {4}((?:\S.* \| )?mesos-gpu \S.*)$", reference)
    every = [words for line in lines for words in ours(line)]
    assert len(every) > 60
    assert {words: unknown(words) for words in every if unknown(words)} == {}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("ps --all", ""),
        ("exec train -it -- made --up", ""),
        ("access show|apply|diff", ""),
        ("--home DIR up --port 8081", ""),
        ("audit --sinc 2h", "--sinc"),
        ("quue list", "quue"),
        ("access shw", "shw"),
        ("ps --made-up", "--made-up"),
    ],
)
def test_a_command_that_there_is_not_is_seen(words: str, wrong: str) -> None:
    assert unknown(words) == wrong


def test_commands_of_ours_are_found_in_a_line() -> None:
    line = "echo 'a | b' | mesos-gpu submit - ; cd x && mesos-gpu wait $(mesos-gpu ps -q) > out"
    assert list(ours(line)) == ["submit -", "wait '$'", "ps -q"]


# --- how blocks are read


def test_a_block_of_sh_is_lines_without_remarks() -> None:
    block = Block("a", 1, "sh", "one --x \\\n  two   # why\n\n# all\nthree '#4'\n")
    assert [each.text for each in block.commands] == ["one --x    two", "three '#4'"]


def test_a_block_of_console_has_what_is_printed() -> None:
    block = Block("a", 1, "console", "$ one\nits output\n$ two\n")
    assert block.commands == [Command("one", ["its output"]), Command("two", [])]


def test_what_cannot_run_and_files_have_no_commands() -> None:
    assert Block("a", 1, "sh", "one\n", {"not run": "why"}).commands == []
    assert Block("a", 1, "sh", "one\n", {"file": "x.sh"}).commands == []


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (["ID  STATE", "train-…  running"], "ID          STATE\ntrain-1a2b  running\n", True),
        (["…", "last"], "a\nb\nlast\n", True),
        (["a"], "a\nb\n", False),
        (["a.b"], "axb\n", False),
        ([], "anything", False),
    ],
)
def test_dots_stand_for_anything_in_what_is_printed(expected: list[str], output: str, same: bool) -> None:
    assert printed(expected, output) is same
