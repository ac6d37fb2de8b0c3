"""Paths of this host that no task is given, and whether one path is in another. Pure."""

from typing import Final

#: Would hand a task the host: its nodes, its kernel's switches, its engines.
FORBIDDEN: Final = ("/dev", "/proc", "/sys", "/run/docker.sock", "/run/containerd")


def overlap(path: str, other: str) -> bool:
    """Whether one is the other, or in it. Both without symbolic links."""
    return is_within(path, other) or is_within(other, path)


def is_within(path: str, directory: str) -> bool:
    """Whether it is the directory, or in it. Both without symbolic links."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
