"""Paths of this host that no task may have, and tests of whether a path is in another. Pure."""

from typing import Final

#: Paths that would give a task control of the host: its nodes, its kernel's settings, its engines.
FORBIDDEN: Final = ("/dev", "/proc", "/sys", "/run/docker.sock", "/run/containerd")


def overlap(path: str, other: str) -> bool:
    """Return whether one path is the other, or in it. Both must have no symbolic links."""
    return is_within(path, other) or is_within(other, path)


def is_within(path: str, directory: str) -> bool:
    """Return whether a path is a directory, or in it. Both must have no symbolic links."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
