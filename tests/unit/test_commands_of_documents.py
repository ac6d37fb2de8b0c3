"""Commands in documents: each block runs in a test or says why not, and each command that a sentence names is there."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import click
import pytest

from mesos_gpu.cli import main
from mesos_gpu.cli.reference import root_context
from tests.documents.blocks import (
    COMMANDS,
    ROOT,
    Block,
    Command,
    blocks,
    documents,
    printed,
    without_fences,
)

MARKS = {"not run", "file", "exit", "life cycle", "imports"}
MIN_REASON = 15  # letters
PAGES = {document: (ROOT / document).read_text(encoding="utf-8") for document in documents()}
#: Programs that every reader has: of a shell, of a bare Debian 12 with what the README asks for, and of this package.
BARE = {
    *("do", "done", "echo", "exec", "for", "sleep", "id", "pwd", "xargs", "openssl", "hostname"),
    *("git", "make", "python3", "mesos-gpu"),
}
#: The beginning of a line that is typed in a terminal.
TYPED = re.compile(r"^(\$ |(sudo )?(mesos-gpu|curl|make|pip|systemctl) )", re.MULTILINE)


@pytest.fixture(scope="module")
def all_blocks() -> list[Block]:
    return [block for document in documents() for block in blocks(document)]


def place(block: Block) -> str:
    """Return the file and line of a block."""
    return f"{block.document}:{block.line}"


def hidden_commands(block: Block) -> Iterator[str]:
    """Find commands that no test sees: tests run blocks of `sh` and `console`."""
    if block.language not in COMMANDS and "file" not in block.marks and TYPED.search(block.text):
        yield f"{place(block)}: write ```sh or ```console, and <!-- not run: WHY --> above it if it cannot run"


def test_document_blocks_with_commands_are_marked_as_such(all_blocks: list[Block]) -> None:
    assert [fault for block in all_blocks for fault in hidden_commands(block)] == []


def mark_faults(block: Block) -> Iterator[str]:
    """Find marks that are unknown or give no reason, and dialogues without a command."""
    if unknown_marks := block.marks.keys() - MARKS:
        yield f"{place(block)}: unknown marks {sorted(unknown_marks)}"
    if "not run" in block.marks and len(block.marks["not run"]) < MIN_REASON:
        yield f"{place(block)}: why is it not run?"
    if block.language == "console" and "not run" not in block.marks and not block.commands:
        yield f"{place(block)}: no line begins with `$ `"


def test_document_blocks_have_known_marks_and_reasons(all_blocks: list[Block]) -> None:
    assert [fault for block in all_blocks for fault in mark_faults(block)] == []


def missing_tests(block: Block) -> Iterator[str]:
    """Find tests that the reason of a block names and that are not there."""
    for name in re.findall(r"tests/[\w/]+(?:\.py)?", block.marks.get("not run", "")):
        if not (ROOT / name).exists():
            yield f"{place(block)}: {name} is not there"


def test_document_blocks_name_tests_that_exist(all_blocks: list[Block]) -> None:
    assert [fault for block in all_blocks for fault in missing_tests(block)] == []


def programs_of(line: str) -> Iterator[str]:
    """Yield the programs that a line of a shell starts."""
    is_first = True
    for word in shlex.shlex(line, posix=True, punctuation_chars=True):
        if is_first and (word.isalnum() or "-" in word):
            yield word
        is_first = set(word) <= set("|&;(")


def test_document_commands_run_programs_of_a_bare_debian_or_say_how_to_install_them(
    all_blocks: list[Block],
) -> None:
    missing = {
        f"{place(block)}: {program}: is it on a bare Debian? If not: apt-get install"
        for block in all_blocks
        for command in block.commands
        for program in programs_of(command.text)
        if program not in BARE
        and not re.search(rf"apt-get install [\w -]*\b{program}\b", PAGES[block.document])
    }
    assert missing == set()


def test_document_block_against_a_rule_is_found() -> None:
    assert list(hidden_commands(Block("a", 3, "text", "$ mesos-gpu ps\n")))
    assert not list(hidden_commands(Block("a", 3, "sh", "mesos-gpu ps\n")))
    assert list(mark_faults(Block("a", 3, "sh", "", {"not rum": "it takes a cluster"})))
    assert list(mark_faults(Block("a", 3, "sh", "", {"not run": "why"}))) == ["a:3: why is it not run?"]
    assert list(mark_faults(Block("a", 3, "console", "ps\n")))
    assert list(missing_tests(Block("a", 3, "sh", "", {"not run": "see tests/gone.py"}))) == [
        "a:3: tests/gone.py is not there"
    ]


# --- commands in sentences and tables

NAMED = re.compile(r"`mesos-gpu ([^`]+)`")


@pytest.fixture(scope="module", autouse=True)
def _all_commands() -> None:
    """Import every command, which takes longer than all that is asked of them."""
    context = root_context()
    groups: list[click.Group] = [main]
    while groups:
        group = groups.pop()
        inner = [group.get_command(context, name) for name in group.list_commands(context)]
        groups += [each for each in inner if isinstance(each, click.Group)]


def unknown(words: str) -> str:
    """Return the first word of a command that is unknown: `audit --sinc` gives `--sinc`; empty if all are known."""
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
    """Return the names of a command's options, and whether each takes a value."""
    takes = {"-h": False, "--help": False}
    for each in command.params:
        if isinstance(each, click.Option):
            takes |= dict.fromkeys((*each.opts, *each.secondary_opts), not (each.is_flag or each.count))
    return takes


def _short(name: str, options: dict[str, bool]) -> bool:
    """Return whether a word is several letters of options at once, as -it."""
    return not name.startswith("--") and all(f"-{letter}" in options for letter in name[1:])


def unknown_commands(place: str, commands: Iterable[str]) -> Iterator[str]:
    """Find words of commands, as they follow `mesos-gpu`, that no command or option has."""
    for words in commands:
        if wrong := unknown(words):
            yield f"{place}: mesos-gpu {words}: there is no {wrong}"


def named(document: str) -> Iterator[tuple[str, str]]:
    """Find commands in sentences: place, and words after `mesos-gpu`."""
    text = without_fences((ROOT / document).read_text(encoding="utf-8"))
    for each in NAMED.finditer(text):
        line = text.count("\n", 0, each.start()) + 1
        yield f"{document}:{line}", each[1].replace("\n", " ")


def test_document_sentences_name_commands_that_exist() -> None:
    pairs = [pair for document in documents() for pair in named(document)]
    assert [fault for place, words in pairs for fault in unknown_commands(place, [words])] == []


def test_document_commands_without_a_test_exist(all_blocks: list[Block]) -> None:
    kept = [replace(each, marks={}) for each in all_blocks if "not run" in each.marks]
    pairs = [(place(each), ours(command.text)) for each in kept for command in each.commands]
    assert [fault for pair in pairs for fault in unknown_commands(*pair)] == []


def ours(line: str) -> Iterator[str]:
    """Find the words that follow `mesos-gpu` in each command of a line of a shell."""
    tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
    for is_separator, words in groupby(tokens, lambda token: set(token) <= set("|;&()<>\n")):
        name, *rest = words
        if not is_separator and name == "mesos-gpu":
            yield shlex.join(rest)


def test_help_examples_are_of_commands_that_exist() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^ {4}((?:\S.* \| )?mesos-gpu \S.*)$", reference)
    every = [words for line in lines for words in ours(line)]
    assert len(every) > 60
    assert list(unknown_commands("docs/reference/cli.md", every)) == []


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
def test_document_command_that_is_unknown_is_found(words: str, wrong: str) -> None:
    assert unknown(words) == wrong
    assert list(unknown_commands("a:3", [words])) == [
        f"a:3: mesos-gpu {words}: there is no {each}" for each in [wrong] if each
    ]


def test_document_commands_are_found_in_a_line_of_a_shell() -> None:
    line = "echo 'a | b' | mesos-gpu submit - ; cd x && mesos-gpu wait $(mesos-gpu ps -q) > out"
    assert list(ours(line)) == ["submit -", "wait '$'", "ps -q"]


# --- how blocks are read


def test_document_block_of_sh_is_lines_without_remarks() -> None:
    block = Block("a", 1, "sh", "one --x \\\n  two   # why\n\n# all\nthree '#4'\n")
    assert [each.text for each in block.commands] == ["one --x    two", "three '#4'"]


def test_document_block_of_console_has_the_printed_lines() -> None:
    block = Block("a", 1, "console", "$ one\nits output\n$ two\n")
    assert block.commands == [Command("one", ["its output"]), Command("two", [])]


def test_document_block_that_is_not_run_or_a_file_has_no_commands() -> None:
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
def test_document_output_takes_dots_for_anything(expected: list[str], output: str, same: bool) -> None:
    assert printed(expected, output) is same
