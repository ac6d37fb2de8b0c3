"""Rules for documents: files and headings that they name, lengths, records of decisions, and examples."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import yaml

from mesos_gpu.model.jobs.why import Stage
from tests.documents.blocks import without_fences

ROOT = Path(__file__).parents[2]
GENERATED = "docs/reference/cli.md"
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
MADE = ("build", "dist")  # by targets of make
#: Documents that are not on the site, beside the README.
OTHERS = [ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")]
TOP = {
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in MADE
}
PACKAGES = ("mesos_gpu", "isolator")
#: A path that begins with one of these leaves out the package that it is in.
INNER = {path.name for package in PACKAGES for path in (ROOT / package).iterdir() if path.is_dir()}


def documents() -> list[Path]:
    """Return the documents that are written by hand."""
    return sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md")} - {ROOT / GENERATED})


def find_faults(paths: Iterable[Path], rule: Callable[[Path, str], Iterable[tuple[int, str]]]) -> list[str]:
    """Return file, line and fault of all that a rule finds in documents."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in paths
        for line, fault in rule(path, path.read_text(encoding="utf-8"))
    ]


def paths_in(text: str) -> Iterator[tuple[int, str]]:
    """Find names in backticks that mean a file or a folder of the repository, with their lines."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in CODE.findall(line):
            if PATH.fullmatch(name) and _means_a_file(name, line):
                yield number, name


def _means_a_file(name: str, line: str) -> bool:
    top, slash, _ = name.partition("/")
    if not slash:
        return "Code:" in line and name.endswith(".py")
    short = top in INNER and (
        name.endswith(".py") or any((ROOT / package / name).exists() for package in PACKAGES)
    )
    return top in TOP or short


def missing_files(_: Path, text: str) -> Iterator[tuple[int, str]]:
    """Find names of files that are not there."""
    for line, name in paths_in(text):
        if not (ROOT / name).exists():
            yield line, f"{name} is no file from the top of the repository"


def test_documents_name_files_that_exist() -> None:
    assert find_faults(documents(), missing_files) == []


def test_document_path_that_is_gone_or_short_is_found() -> None:
    text = (
        "`mesos_gpu/gone.py`, `engine/step.py`, `policy/cluster`, `gpu/nvidia`, `train.py`\nCode: `step.py`"
    )
    assert list(paths_in(text)) == [
        (1, "mesos_gpu/gone.py"), (1, "engine/step.py"), (1, "policy/cluster"), (2, "step.py")
    ]  # fmt: skip
    assert [line for line, _ in missing_files(ROOT, f"`docs/index.md`\n{text}")] == [2, 2, 2, 3]


# --- lines and paragraphs

MAX_CHARACTERS = 159  # of a line; a row of a table and a line of code cannot be broken
MAX_LINES = 7  # of a paragraph, or of an item of a list


def paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Split paragraphs and items of lists from headings, tables and code, each with the number of its first line."""
    paragraph: list[str] = []
    in_code = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        plain = (
            not in_code and not fence and line.strip() and not line.lstrip().startswith(("#", "|", "<!--"))
        )
        if paragraph and (not plain or re.match(r"\s*([-*]|\d+\.) ", line)):
            yield number - len(paragraph), paragraph
            paragraph = []
        if plain:
            paragraph.append(line)


def long_blocks(_: Path, text: str) -> Iterator[tuple[int, str]]:
    """Find lines and paragraphs that are too long."""
    for begin, lines in paragraphs(text):
        for number, line in enumerate(lines, begin):
            if len(line) > MAX_CHARACTERS:
                yield number, f"a line of {len(line)} characters"
        if len(lines) > MAX_LINES:
            yield begin, f"a paragraph of {len(lines)} lines"


def test_document_lines_and_paragraphs_are_short() -> None:
    assert find_faults(documents(), long_blocks) == []


def test_document_line_or_paragraph_that_is_long_is_found() -> None:
    text = f"# Title\n\n{'x' * 160}\n\n| {'x' * 160} |\n\n" + "line\n" * 8
    assert list(long_blocks(ROOT, text)) == [(3, "a line of 160 characters"), (7, "a paragraph of 8 lines")]


def test_document_paragraphs_exclude_lists_tables_and_code() -> None:
    text = "# Title\none\ntwo\n- item\n  more\n- item\n\n| a | b |\n```\ncode\n```\nlast"
    assert list(paragraphs(text)) == [
        (2, ["one", "two"]), (4, ["- item", "  more"]), (6, ["- item"]), (12, ["last"])
    ]  # fmt: skip


# --- records of decisions


def records() -> list[Path]:
    """Return the records of decisions in their order."""
    return sorted(ROOT.glob("docs/adr/*.md"))


def record_faults(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Find faults in the form of a record of a decision."""
    lines = text.splitlines()
    if not lines[0].startswith(f"# {int(path.name[:4])}. "):
        yield 1, "the heading does not have the number of the file"
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("# "):
            yield number, "a second heading"
    if not lines[2].startswith("**Status.** "):
        yield 3, "no status"
    if (decisions := sum(line.startswith("**Decision.**") for line in lines)) != 1:
        yield 1, f"{decisions} decisions"


def test_decision_record_has_number_status_and_one_decision() -> None:
    assert find_faults(records(), record_faults) == []


def test_decision_record_without_its_parts_is_found() -> None:
    good = "# 7. Title\n\n**Status.** Accepted.\n\n**Decision.** This.\n"
    path = ROOT / "docs/adr/0007-title.md"
    assert list(record_faults(path, good)) == []
    assert [fault for _, fault in record_faults(path, good.replace("7", "8"))] == [
        "the heading does not have the number of the file"
    ]
    bad = good.replace("**Status.** ", "Status: ") + "# More\n**Decision.** That.\n"
    assert list(record_faults(path, bad)) == [(6, "a second heading"), (3, "no status"), (1, "2 decisions")]


def test_decision_records_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in records()] == list(range(1, len(records()) + 1))


# --- single pages


def test_rest_page_explains_each_reason_to_wait_in_the_order_of_the_funnel() -> None:
    text = (ROOT / "docs/reference/rest.md").read_text()
    table = text[text.index("| `reason` | the agent |") :].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert named == [stage.value for stage in Stage]


def test_contents_name_each_document() -> None:
    """A page that no contents name is not found on the site (docs/index.md)."""
    lines = {
        line
        for name in ("index", "decisions")
        for line in (ROOT / f"docs/{name}.md").read_text().splitlines()
    }
    names = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    named = {name for name in names if name in lines or f"{name.rpartition('/')[0]}/*" in lines}
    assert names - named == {"index"}


def test_sweep_page_shows_the_example_file() -> None:
    example = (ROOT / "docs/examples/sweep.yaml").read_text()
    assert f"```yaml\n{example[example.index('- &one') :]}```" in (ROOT / "docs/sweeps.md").read_text()


def test_alerts_page_has_each_alert_with_its_severity() -> None:
    rules = yaml.safe_load((ROOT / "docs/examples/monitoring/alerts.yml").read_text())["groups"][0]["rules"]
    text = (ROOT / "docs/alerts.md").read_text()
    entries = re.findall(r"^### (\w+)\n(\w+)\. ", text, re.MULTILINE)
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules}
    assert {name: urgency.lower() for name, urgency in entries} == severities


# --- links

LINK = re.compile(r"\]\(([^)\s#]+\.md)?(?:#([^)\s]+))?\)")


def anchors_of(text: str) -> set[str]:
    """Return the names that forges make of the headings of a document."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).replace(" ", "-") for head in heads}


def broken_links(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Find links to documents or headings that are not there."""
    plain = without_fences(text)
    for link in LINK.finditer(plain):
        name, head = link.groups()
        target = (path.parent / name).resolve() if name else path
        line = plain.count("\n", 0, link.start()) + 1
        if name and not target.exists():
            yield line, f"{name} is not there"
        elif head and head not in anchors_of(target.read_text() if name else text):
            yield line, f"{target.name} has no heading #{head}"


def test_document_links_lead_to_existing_headings() -> None:
    assert find_faults([*documents(), *OTHERS], broken_links) == []


def test_document_link_to_a_missing_page_or_heading_is_found() -> None:
    text = (
        "# One `two`\n[here](#one-two) [page](index.md)\n```\n[code](gone.md)\n```\n"
        "[page](gone.md)\n[head](#gone) [head](index.md#gone)\n"
    )
    assert list(broken_links(ROOT / "docs/page.md", text)) == [
        (6, "gone.md is not there"), (7, "page.md has no heading #gone"), (7, "index.md has no heading #gone")
    ]  # fmt: skip


# --- changelog

VERBS = ("Added", "Changed", "Fixed", "Removed")
MAX_WORDS = 25  # of an entry; the target of a link is no word
MAX_CHANGELOG_LINES = 300


def changelog_faults(text: str) -> Iterator[str]:
    """Find entries that begin with another word than a verb of VERBS, or have more than MAX_WORDS words."""
    for entry in re.findall(r"^- (.+(?:\n  .+)*)", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "]", entry).split()
        if words[0] not in VERBS:
            yield f"begins with {words[0]}: {entry}"
        if len(words) > MAX_WORDS:
            yield f"has {len(words)} words: {entry}"


def test_changelog_entries_begin_with_a_verb_and_are_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert list(changelog_faults(text)) == []
    assert len(text.splitlines()) <= MAX_CHANGELOG_LINES


def test_changelog_entry_without_a_verb_or_too_long_is_found() -> None:
    long = "Added " + " ".join(["word"] * 24) + "\n  [page](docs/page.md)"
    text = f"# Changelog\n- Fixed a fault.\n- New: a field.\n- {long}\n"
    assert list(changelog_faults(text)) == ["begins with New:: New: a field.", f"has 26 words: {long}"]
