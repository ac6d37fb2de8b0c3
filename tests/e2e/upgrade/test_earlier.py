"""The earlier program comes from the history of git, also where the clone was made without it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.upgrade.earlier import unpacked
from tests.runner.skips import ALLOWED, allowed

pytestmark = [pytest.mark.on_change("upgrade")]


@pytest.fixture
def first(tmp_path: Path) -> str:
    """A repository with two commits, a shallow clone of it, and the first commit, which the clone lacks."""
    origin = tmp_path / "origin"
    git(tmp_path, "init", "-q", str(origin))
    for text in ("earlier", "now"):
        (origin / "program").write_text(text)
        git(origin, "add", "program")
        git(origin, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", text)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", str(tmp_path / "shallow"))
    return git(origin, "rev-parse", "HEAD~1")


def git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_earlier_program_is_fetched_into_a_shallow_clone(first: str, tmp_path: Path) -> None:
    clone = tmp_path / "shallow"
    head = git(clone, "rev-parse", "HEAD")
    tree = unpacked(tmp_path / "tree", first, clone=clone, parts=["program"])
    assert (tree / "program").read_text() == "earlier"
    assert git(clone, "rev-parse", "HEAD") == head
    assert git(clone, "status", "--porcelain") == ""


def test_earlier_program_without_a_remote_is_an_allowed_skip(first: str, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "origin")
    with pytest.raises(pytest.skip.Exception) as skipped:
        unpacked(tmp_path / "tree", first, clone=tmp_path / "shallow", parts=["program"])
    reason = str(skipped.value)
    assert "git fetch --unshallow" in reason
    assert any(each.search(reason) for each in allowed(ALLOWED.read_text()))
