"""Documents name files that are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mesos_gpu.model.jobs.why import Stage
from scripts import rooms

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/reference/cli.md",)
DOCUMENTS = sorted(
    path
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    if str(path.relative_to(ROOT)) not in GENERATED
)
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
MADE = ("build", "dist")  # by targets of make
TOP = {
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in MADE
}
PACKAGES = ("mesos_gpu", "isolator")
#: A path that begins with one of these leaves out the package that it is in.
INNER = {path.name for package in PACKAGES for path in (ROOT / package).iterdir() if path.is_dir()}


def paths_in(text: str) -> Iterator[str]:
    """What is in backticks and means a file or a folder of the repository."""
    for line in text.splitlines():
        for name in CODE.findall(line):
            if PATH.fullmatch(name) and _means_a_file(name, line):
                yield name


def _means_a_file(name: str, line: str) -> bool:
    top, slash, _ = name.partition("/")
    if not slash:
        return "Code:" in line and name.endswith(".py")
    short = top in INNER and (
        name.endswith(".py") or any((ROOT / package / name).exists() for package in PACKAGES)
    )
    return top in TOP or short


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_that_a_document_names_is_there(path: Path) -> None:
    named = [name for name in paths_in(path.read_text()) if not (ROOT / name).exists()]
    assert named == [], f"name files from the top of the repository: {named}"


def test_a_path_that_is_gone_or_short_is_seen() -> None:
    text = (
        "`mesos_gpu/gone.py`, `engine/step.py`, `policy/cluster`, `gpu/nvidia`, `train.py`\nCode: `step.py`"
    )
    assert list(paths_in(text)) == ["mesos_gpu/gone.py", "engine/step.py", "policy/cluster", "step.py"]


# --- lines and paragraphs

MOST_CHARACTERS = 159  # of a line; a row of a table and a line of code cannot be broken
MOST_LINES = 7  # of a paragraph, or of an item of a list


def paragraphs(text: str) -> Iterator[list[str]]:
    """Paragraphs and items of lists, without headings, tables and code."""
    paragraph: list[str] = []
    in_code = False
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        plain = (
            not in_code and not fence and line.strip() and not line.lstrip().startswith(("#", "|", "<!--"))
        )
        if paragraph and (not plain or re.match(r"\s*([-*]|\d+\.) ", line)):
            yield paragraph
            paragraph = []
        if plain:
            paragraph.append(line)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_and_paragraphs_are_short(path: Path) -> None:
    blocks = list(paragraphs(path.read_text()))
    assert [line for lines in blocks for line in lines if len(line) > MOST_CHARACTERS] == []
    assert [lines[0] for lines in blocks if len(lines) > MOST_LINES] == []


def test_items_of_a_list_tables_and_code_are_told_from_paragraphs() -> None:
    text = "# Title\none\ntwo\n- item\n  more\n- item\n\n| a | b |\n```\ncode\n```\nlast"
    assert list(paragraphs(text)) == [["one", "two"], ["- item", "  more"], ["- item"], ["last"]]


# --- records of decisions

RECORDS = sorted(ROOT.glob("docs/adr/*.md"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_has_its_number_a_status_and_one_decision(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith(f"# {int(path.name[:4])}. ")
    assert [line for line in lines if line.startswith("# ")] == lines[:1]
    assert lines[2].startswith("**Status.** ")
    assert sum(line.startswith("**Decision.**") for line in lines) == 1


def test_records_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_each_reason_why_a_job_waits_is_explained_in_the_order_of_the_funnel() -> None:
    text = (ROOT / "docs/reference/rest.md").read_text()
    table = text[text.index("| `reason` | the agent |") :].split("\n\n")[0]
    told = [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert told == [stage.value for stage in Stage]


def test_each_document_is_in_the_contents() -> None:
    """On the site, a page that none of these names is not found (docs/index.md)."""
    lines = {
        line
        for name in ("index", "decisions")
        for line in (ROOT / f"docs/{name}.md").read_text().splitlines()
    }
    names = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    named = {name for name in names if name in lines or f"{name.rpartition('/')[0]}/*" in lines}
    assert names - named == {"index"}


def test_the_graphs_of_imports_are_those_of_the_code() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert rooms.rendered(text) == text, "run: make docs"
    assert rooms.rendered(text.replace("    cli --> local\n", "")) == text


def test_arrows_that_follow_from_others_are_left_out() -> None:
    assert rooms.reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}) == {
        "a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()
    }  # fmt: skip


def test_the_sweep_that_a_page_shows_is_the_example() -> None:
    example = (ROOT / "docs/examples/sweep.yaml").read_text()
    assert f"```yaml\n{example[example.index('- &one') :]}```" in (ROOT / "docs/sweeps.md").read_text()


def test_each_alert_has_an_entry_that_says_how_urgent_it_is() -> None:
    rules = yaml.safe_load((ROOT / "docs/examples/monitoring/alerts.yml").read_text())["groups"][0]["rules"]
    text = (ROOT / "docs/alerts.md").read_text()
    entries = re.findall(r"^### (\w+)\n(\w+)\. ", text, re.MULTILINE)
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules}
    assert {name: urgency.lower() for name, urgency in entries} == severities


LINK = re.compile(r"\]\(([^)\s#]+\.md)?(?:#([^)\s]+))?\)")


def heads_of(path: Path) -> set[str]:
    """What links may name in a document, as forges make it of its headings."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, ROOT / "SECURITY.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text()).replace("\n", " ")
    for name, head in LINK.findall(text):
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{name} is not there"
        assert not head or head in heads_of(target), f"{target.name} has no heading #{head}"
