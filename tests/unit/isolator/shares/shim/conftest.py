"""Tasks with shares, on cards that are files."""

from pathlib import Path

import pytest

from tests.cuda import Bench, compiled


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The doubles of the driver's libraries, and ours, compiled once."""
    return compiled(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def bench(tmp_path: Path, libraries: tuple[Path, dict[str, str]]) -> Bench:
    return Bench(tmp_path, *libraries)
