"""Where in a text that people write a value stands: lines, by JSON pointers."""

from collections.abc import Callable, Iterator
from typing import Any

Lines = Callable[[str], int | None]


def placed(line_of: Lines, pointer: str, reason: str) -> str:
    """A problem with its line, if there is one: `line 3, /mem: must be …`."""
    line = line_of(pointer)
    return f"{'' if line is None else f'line {line}, '}{pointer or '/'}: {reason}"


def lines_of(text: str) -> Lines:
    """A function that says on which line, from 1, of a JSON or YAML text stands what a JSON pointer names; where the
    text lacks it, what it would be in. None: the text cannot be read as YAML, which most JSON is too."""
    import yaml

    try:
        # A tab is no white space to YAML; within strings JSON has none.
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
    """The line, from 0, where a part of a node begins, and that part; None: there is none of that name."""
    if isinstance(node.value, str):
        return None
    for i, item in enumerate(node.value):
        if not isinstance(item, tuple):  # of a list
            if str(i) == name:
                return item.start_mark.line, item
        elif item[0].value == name:
            return item[0].start_mark.line, item[1]
    return None
