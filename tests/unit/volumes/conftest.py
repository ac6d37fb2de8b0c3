"""Directories of tests of volumes, which make many files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import memory_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Make a directory in memory."""
    with memory_directory() as path:
        yield path
