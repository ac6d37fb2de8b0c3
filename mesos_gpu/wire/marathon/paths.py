"""Ids of apps and groups: paths as "/shop/db", relative ones as "db" and "../db". Pure."""

import re
from typing import Final

ROOT: Final = "/"
_LABEL: Final = r"([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])"
_STEP: Final = re.compile(rf"({_LABEL}\.)*{_LABEL}")
_RESERVED: Final = ("restart", "tasks", "versions", ".", "..")  # they are verbs of the REST interface


def steps_of(path: str) -> list[str]:
    """The names between the slashes; how many slashes there are, and where, is of no matter."""
    return [step for step in path.split("/") if step]


def absolute(path: str, base: str = ROOT) -> str:
    """Return the id that `path` names below `base`, with "." and ".." resolved.

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
    """The group that an absolute id is in; the root's is the root."""
    return ROOT + "/".join(steps_of(path)[:-1])


def problem_of(path: str) -> str:
    """Why an absolute id may not be an app's or a group's; "" if it may. The root may be a group's."""
    steps = steps_of(path)
    if ".." in steps:
        return f"{path!r} climbs above the root: name it from the root, as /shop/db, or with fewer '..'"
    bad = [step for step in steps if not _STEP.fullmatch(step)]
    if bad:
        return f"{bad[0]!r} must fully match regular expression '{_STEP.pattern}'"
    if steps and steps[-1] in _RESERVED:
        return f"must not end with any of {', '.join(_RESERVED)}"
    return ""
