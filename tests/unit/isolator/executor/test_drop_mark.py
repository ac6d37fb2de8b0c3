"""Line that Mesos' containerizer writes to the stderr of a task."""

import os
from pathlib import Path

import pytest

from isolator.executor.upkeep import drop_mark


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (b"Marked '/' as rslave\n", b""),
        (b"Marked '/' as rslave\nfetched\n", b"Marked '/' as rslave\nfetched\n"),
        (b"boom\n", b"boom\n"),
        (b"", b""),
    ],
)
def test_mark_of_the_containerizer_is_dropped_where_it_is_alone(
    tmp_path: Path, text: bytes, left: bytes
) -> None:
    path = tmp_path / "stderr"
    path.write_bytes(text)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    drop_mark(fd)
    os.write(fd, b"own\n")
    os.close(fd)
    assert path.read_bytes() == left + b"own\n"


def test_stderr_that_is_a_pipe_is_left_alone() -> None:
    reading, writing = os.pipe()
    drop_mark(writing)
    os.close(writing)
    os.close(reading)
