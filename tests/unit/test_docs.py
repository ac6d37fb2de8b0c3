"""Documents name files that are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/reference/cli.md",)
DOCUMENTS = sorted(
    path
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    if str(path.relative_to(ROOT)) not in GENERATED
)
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
TOP = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
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
