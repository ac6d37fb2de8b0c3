"""Files of directories that running processes write to and remove."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def paths_below(top: Path) -> Iterator[Path]:
    """Yield all paths below a directory, of any kind; those that vanish meanwhile are passed over, where `Path.rglob`
    fails."""
    for directory, directories, files in os.walk(top):
        yield from map(Path(directory).joinpath, (*directories, *files))


def contains(path: Path, wanted: Sequence[bytes]) -> bool:
    """Return whether a file has one of these texts; what is no file, is gone or cannot be read has none."""
    try:
        if path.is_symlink() or not path.is_file():
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return any(text in content for text in wanted)
