"""JSON of orders for file transfers from and to a task; pure functions.

The host side imports this module, so it uses only the standard library's json.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.channel.tree import is_name
from mesos_gpu.wire.checking import Problem

LIST, GET, PUT = "list", "get", "put"
MAX_PATH: Final = 4096  # characters


@dataclass(frozen=True, slots=True)
class FileOrder:
    """An order for a file transfer with a task, followed by records of `mesos_gpu.wire.channel.tree`.

    Attributes:
        what: `LIST` to list the path, without the contents of its directories; `GET` to read it with all contents;
            `PUT` to write what the client sends.
        path: Path in the task's file system; a relative path is relative to its sandbox.
        name: Name of the file or directory for `PUT`; "" to write into a directory.
    """

    what: str
    path: str = ""
    name: str = ""


def file_order_of(value: object) -> tuple[FileOrder | None, list[Problem]]:
    """Parse an order; return it and no problems, or None and all problems."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    value = {name: each for name, each in value.items() if each is not None}
    known = FileOrder.__dataclass_fields__.keys()
    problems = [Problem(f"/{name}", "unknown field") for name in sorted(value.keys() - known)]
    if value.get("what") not in (LIST, GET, PUT):
        problems.append(Problem("/what", f"must be {LIST}, {GET} or {PUT}, got {value.get('what')!r}"))
    path, name = value.get("path", ""), value.get("name", "")
    if not isinstance(path, str) or "\0" in path or len(path) > MAX_PATH:
        problems.append(Problem("/path", f"must be a path of at most {MAX_PATH} characters without NUL"))
    if name != "" and not is_name(name):
        problems.append(Problem("/name", "must be a file name without slash, at most 255 bytes"))
    elif name != "" and value.get("what") != PUT:
        problems.append(Problem("/name", f"is only for {PUT}; leave it out"))
    return (None, problems) if problems else (FileOrder(**value), [])
