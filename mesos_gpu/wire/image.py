"""References of Docker images, `[registry[:port]/]path[:tag][@digest]`; pure functions.

The grammar is that of the distribution project's `reference` package. As in Docker, the first part is a registry if it
has a dot, a port or a capital letter, or is `localhost`.
"""

import re
from typing import Final

_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PART: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_MAX: Final = 255  # characters of registry and path together


def problem(reference: str) -> str | None:
    """Return the problem of a reference, after "must be an image, as …: "; None if it is valid."""
    name, at, digest = reference.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return f"{digest!r} is not a digest such as sha256:… with at least 32 hexadecimal digits"
    head, colon, last = name.rpartition(":")
    if colon and "/" not in last and not last.endswith("]"):
        if not _TAG.fullmatch(last):
            return f"{last!r} is not a tag: 1 to 128 of A-Z, a-z, 0-9, '_', '.' and '-', not beginning with '.' or '-'"
        name = head
    return _name_problem(name)


def _name_problem(name: str) -> str | None:
    """Return the problem of registry and path; None if they are valid."""
    if len(name) > _MAX:
        return f"its name has {len(name)} characters, more than {_MAX}"
    if name.startswith("/"):
        return "it begins with '/'; remove that, or put a registry before it, as registry.example/path"
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        if not _REGISTRY.fullmatch(first):
            return f"{first!r} is not a registry such as registry.example:5000"
        name = rest
    for part in name.split("/"):
        if part != part.lower():
            return f"{part!r} must be in lower case"
        if not _PART.fullmatch(part):
            return f"{part!r} is not a part of a name: a-z and 0-9, with '.', '_', '__' or '-' between them"
    return None


def short_name(reference: str) -> str:
    """Return the last part of the path, by which people call the image."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
