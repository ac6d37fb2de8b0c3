"""Tasks with shares, on cards that are files."""

from pathlib import Path

import pytest

from tests.cuda import Bench


@pytest.fixture
def bench(tmp_path: Path, libraries: tuple[Path, dict[str, str]]) -> Bench:
    return Bench(tmp_path, *libraries)
