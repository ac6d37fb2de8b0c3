"""Ids of apps and groups: paths such as "/shop/db", or relative ones such as "db" and "../db"; pure functions."""

import re
from typing import Final

ROOT: Final = "/"
_LABEL: Final = r"([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])"
_STEP: Final = re.compile(rf"({_LABEL}\.)*{_LABEL}")
_RESERVED: Final = ("restart", "tasks", "versions", ".", "..")  # used as verbs in paths of the REST interface


def steps_of(path: str) -> list[str]:
    """Return the names in a path; repeated slashes, and slashes at the ends, do not matter."""
    return [step for step in path.split("/") if step]


def absolute(path: str, base: str = ROOT) -> str:
    """Return the absolute id that `path` names relative to `base`, with "." and ".." resolved.

    A ".." that climbs above the root stays at the beginning, as in "/../db": `problem_of` refuses such an id.
    """
    steps = [] if path.startswith("/") else steps_of(base)
    for step in steps_of(path):
        if step == ".." and steps and steps[-1] != "..":
            steps.pop()
        elif step != ".":
            steps.append(step)
    return ROOT + "/".join(steps)


def parent_of(path: str) -> str:
    """Return the id of the group that contains an absolute id; the root for the root itself."""
    return ROOT + "/".join(steps_of(path)[:-1])


def problem_of(path: str) -> str:
    """Return why an absolute id is invalid for an app or a group; "" if it is valid. The root is valid for a group."""
    steps = steps_of(path)
    if ".." in steps:
        return f"{path!r} is above the root; write it from the root, as /shop/db, or with fewer '..'"
    bad = [step for step in steps if not _STEP.fullmatch(step)]
    if bad:
        return f"{bad[0]!r} must fully match regular expression '{_STEP.pattern}'"
    if steps and steps[-1] in _RESERVED:
        return f"must not end with any of {', '.join(_RESERVED)}"
    return ""
