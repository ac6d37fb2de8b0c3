"""Files of directories that running processes write to and remove."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(top: Path) -> Iterator[Path]:
    """Yield all files below a directory; those that vanish meanwhile are passed over, where `Path.rglob` fails."""
    for directory, _, names in os.walk(top):
        yield from map(Path(directory).joinpath, names)
