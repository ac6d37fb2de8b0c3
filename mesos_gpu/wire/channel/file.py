"""What a host is to do with files of a task, as JSON. Pure.

Only the standard library's json: the host side imports it.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.channel.tree import is_name
from mesos_gpu.wire.checking import Problem

LIST, GET, PUT = "list", "get", "put"
MAX_PATH: Final = 4096  # characters


@dataclass(frozen=True, slots=True)
class FileOrder:
    """Something to do with files of a task. Records of `mesos_gpu.wire.channel.tree` go each way as needed.

    Attributes:
        what: `LIST` what is at the path, without what is in its directories; `GET` all of it; `PUT` what comes there.
        path: In the task's view; one that does not begin with a slash is from its sandbox.
        name: Of `PUT`: that of what comes; "": it is what is in a directory.
    """

    what: str
    path: str = ""
    name: str = ""


def file_order_of(value: object) -> tuple[FileOrder | None, list[Problem]]:
    """What a JSON value asks for, or all that is wrong with it."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    value = {name: each for name, each in value.items() if each is not None}
    known = FileOrder.__dataclass_fields__.keys()
    problems = [Problem(f"/{name}", "is not known here") for name in sorted(value.keys() - known)]
    if value.get("what") not in (LIST, GET, PUT):
        problems.append(Problem("/what", f"must be {LIST}, {GET} or {PUT}, got {value.get('what')!r}"))
    path, name = value.get("path", ""), value.get("name", "")
    if not isinstance(path, str) or "\0" in path or len(path) > MAX_PATH:
        problems.append(Problem("/path", f"must be a path of at most {MAX_PATH} characters without NUL"))
    if name != "" and not is_name(name):
        problems.append(Problem("/name", "must be the name of a file in a directory, 255 bytes at most"))
    elif name != "" and value.get("what") != PUT:
        problems.append(Problem("/name", f"is of {PUT} alone"))
    return (None, problems) if problems else (FileOrder(**value), [])
