"""Paths of a host and persistent volumes that a task mounts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import normpath


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the host with its path in the task. A relative path is relative to the task's sandbox."""

    source: str  # path on the host; for a persistent volume its id, or before it has one, its name or path
    target: str  # path in the task's file system
    read_only: bool = True
    # Size of a new persistent volume; 0 for a path of the host or an existing named volume.
    volume_mib: int = 0
    is_made: bool = False  # whether a task has run with the volume, so that its directory must be there
    volume: str = ""  # name of the owner's persistent volume; "" for other mounts


def persistent_of(mounts: Sequence[Mount]) -> list[Mount]:
    """Return the persistent volumes among mounts."""
    return [mount for mount in mounts if mount.volume_mib]


def named_of(mounts: Sequence[Mount]) -> list[tuple[int, Mount]]:
    """Return the named volumes among mounts, each with its index."""
    return [(index, mount) for index, mount in enumerate(mounts) if mount.volume]


def unfit(mounts: Sequence[Mount]) -> Iterator[tuple[int, str]]:
    """Yield the mounts that no host could make: the index of each, and the reason with the remedy."""
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        target = normpath(mount.target)
        outside = [path for path in (mount.source, mount.target) if not _is_below(normpath(path))]
        if "\0" in mount.source + mount.target:
            yield index, "a path must not contain NUL; remove it"
        elif outside:
            yield (
                index,
                f"{outside[0]!r} is not in the sandbox; name a path in it, or one from the root, as /data",
            )
        elif target in seen:
            yield index, f"two volumes are at {mount.target!r}; give each a path of its own"
        seen.add(target)


def _is_below(path: str) -> bool:
    return path != "." and path.split("/")[0] != ".."
