"""Terminals of commands in tasks, where the task has terminals of its own and where it has none."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from isolator.session.terminal import open_terminal


def opened(root: Path) -> str:
    """Return the name of a terminal below a root directory, as this process sees it; carry a line over it."""
    above = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        ours, theirs = open_terminal(above)
    finally:
        os.close(above)
    try:
        os.write(ours, b"line\n")
        assert os.read(theirs, 100) == b"line\n"
        assert stat.S_ISCHR(os.fstat(theirs).st_mode)
        return os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_terminal_has_a_name_where_the_root_has_terminals() -> None:
    assert opened(Path("/")).startswith("/dev/pts/")


def _none(dev: Path) -> None:
    dev.rmdir()


def _file(dev: Path) -> None:
    (dev / "ptmx").write_text("")


def _outwards(dev: Path) -> None:
    (dev / "ptmx").symlink_to("/dev/ptmx")  # below the root it is a link to itself


def _pipe(dev: Path) -> None:
    os.mkfifo(dev / "ptmx")  # an open without O_PATH would wait for a writer


@pytest.mark.parametrize("make", [_none, _file, _outwards, _pipe])
def test_terminal_of_a_root_without_terminals_is_of_the_host(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "dev").mkdir()
    make(tmp_path / "dev")
    assert opened(tmp_path).startswith("/dev/pts/")
