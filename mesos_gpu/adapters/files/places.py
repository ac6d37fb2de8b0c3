"""Line numbers of values in JSON or YAML texts, by JSON pointers."""

from collections.abc import Callable, Iterator
from typing import Any

Lines = Callable[[str], int | None]


def placed(line_of: Lines, pointer: str, reason: str) -> str:
    """Return a description of a problem, with its line if known: `line 3, /mem: must be …`."""
    line = line_of(pointer)
    return f"{'' if line is None else f'line {line}, '}{pointer or '/'}: {reason}"


def lines_of(text: str) -> Lines:
    """Return a function that gives the line, from 1, of the value of a JSON pointer in a JSON or YAML text.

    For a missing value it gives the line of the enclosing one; None if the text is not valid YAML, which most JSON is.
    """
    import yaml

    try:
        # YAML does not accept tabs as white space; within JSON strings there are none.
        root = yaml.compose(text.replace("\t", " "), yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        root = None
    return lambda pointer: None if root is None else _line(root, pointer)


def _line(node: Any, pointer: str) -> int:
    line: int = node.start_mark.line
    for name in _names(pointer):
        part = _inner(node, name)
        if part is None:
            break
        line, node = part
    return line + 1


def _names(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")


def _inner(node: Any, name: str) -> tuple[int, Any] | None:
    """Return a part of a node with its line, from 0; None if the node has no such part."""
    if isinstance(node.value, str):
        return None
    for i, item in enumerate(node.value):
        if not isinstance(item, tuple):  # the item of a list
            if str(i) == name:
                return item.start_mark.line, item
        elif item[0].value == name:
            return item[0].start_mark.line, item[1]
    return None
