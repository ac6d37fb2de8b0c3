"""What a Debian package takes of others: releases as pip has installed them, and nothing that was changed since."""

from importlib import metadata
from pathlib import Path

import pytest

from mesos_gpu.errors import Unavailable
from scripts import deb, locks


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> locks.Locked:
    """A small locked release, as it is installed, in a directory of its own; a test may change it."""
    [small] = [each for each in locks.read(locks.RUN) if each.name == "click"]
    here = tmp_path / "here"
    deb._copy(small, here)
    [copied] = metadata.distributions(name=small.name, path=[str(here)])
    monkeypatch.setattr(locks, "installed", lambda _: copied)
    return small


def test_a_release_is_taken_as_it_was_installed(release: locks.Locked, tmp_path: Path) -> None:
    deb._copy(release, tmp_path / "there")
    names = [{path.name for path in (tmp_path / top / "click").iterdir()} for top in ("here", "there")]
    assert names[0] == names[1]
    assert "core.py" in names[0]


def test_a_file_that_was_changed_since_is_refused(release: locks.Locked, tmp_path: Path) -> None:
    with (tmp_path / "here/click/core.py").open("a") as file:
        file.write("import os\n")
    with pytest.raises(Unavailable, match=r"click/core\.py has been changed since it was installed"):
        deb._copy(release, tmp_path / "there")
