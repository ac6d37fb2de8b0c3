"""Paths below a root, opened while names on the host change."""

import multiprocessing
import os
from pathlib import Path

import pytest

from isolator.host.beneath import open_below_root


def rename_always(path: str) -> None:
    while True:
        os.rename(f"{path}/one", f"{path}/other")
        os.rename(f"{path}/other", f"{path}/one")


def test_path_is_opened_while_others_rename_files(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "one").touch()
    root = os.open(tmp_path, os.O_PATH)
    other = multiprocessing.get_context("fork").Process(target=rename_always, args=(str(tmp_path),))
    other.start()
    try:
        for _ in range(2000):
            os.close(open_below_root("directory/../" * 10 + "directory", root, os.O_PATH))
        with pytest.raises(FileNotFoundError):
            open_below_root("absent/../directory", root, os.O_PATH)
    finally:
        other.kill()
        other.join()
        os.close(root)
