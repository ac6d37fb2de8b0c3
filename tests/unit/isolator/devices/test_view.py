"""Directories of the system that every user may write to."""

import os
from pathlib import Path

import pytest

from isolator.devices import view
from isolator.devices.view import writable_by_all


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory, with others up to three levels below it, where no place is private to tasks."""
    monkeypatch.setattr(view, "PRIVATE", ())
    modes = {
        "open": 0o777,
        "open/below": 0o777,
        "sticky": 0o1777,
        "write-only": 0o702,
        "closed": 0o755,
        "closed/open": 0o1777,
        "closed/closed": 0o775,
        "closed/closed/open": 0o777,
        "closed/read": 0o704,
        "closed/run": 0o701,
    }
    for name, mode in modes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    return tmp_path


def test_directories_that_all_may_write_are_found_two_levels_deep(root: Path) -> None:
    expected = {"open", "sticky", "write-only", "closed/open"}
    assert {*writable_by_all([str(root)])} == {str(root / name) for name in expected}
    deeper = [str(root), str(root / "closed")]
    assert {*writable_by_all(deeper)} == {str(root / name) for name in (*expected, "closed/closed/open")}
    assert writable_by_all([str(root / "missing"), str(root / "file")]) == []


def test_private_directories_are_none_of_those_that_are_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PRIVATE", (str(root / "open"), str(root / "closed")))
    assert {*writable_by_all([str(root)])} == {str(root / "sticky"), str(root / "write-only")}


def test_a_directory_that_cannot_be_looked_at_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    class Refused:
        path = str(root / "fuse")

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return True

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise PermissionError

    class Scan:
        def __init__(self, path: str) -> None:
            self.entries = [Refused(), *scandir(path)]

        def __enter__(self) -> list[object]:
            return list(self.entries)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Scan)
    assert str(root / "open") in writable_by_all([str(root)])
