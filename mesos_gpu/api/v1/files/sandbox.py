"""What a task that has ended left in its sandbox, as records: read through its agent's files API (`/files`).

The agent reads as root, and resolves links; what they lead to it gives only if that lies in the sandbox
(`FilesProcess::resolve` in Mesos' files.cpp). That is judged by path before the file is opened, so nothing is asked
for while a process of the task could change it; other tasks do not see its sandbox. Its lists (`/files/browse`) do say
what links lead to, wherever that is: so nothing of a list is told before the agent has let it be reached. And files are
left out that the task could not have read: those of root that not everybody may read.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import requests

from mesos_gpu.api.http.answers import invalid
from mesos_gpu.api.v1.logs import LogReader
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.tree import Done, Entry, Mark, Said
from mesos_gpu.wire.checking import Problem

MOST_ENTRIES: Final = 100_000  # of one answer
_IN_IMAGES: Final = "/mnt/mesos/sandbox"  # what tasks with images call it
_NESTED: Final = "/containers/task"  # in the sandbox of its executor (`nested_run.CONTAINER` of the isolator)
_PIECE: Final = 1 << 17
_KINDS: Final = {"-": "file", "d": "dir"}
_ELSEWHERE: Final = "it is a link that leads out of the sandbox"
_REFUSED, _GONE = 400, 404  # of a path that leads out; of one that is not there
Path = tuple[str, ...]


class Sandbox:
    """The sandbox of a task that has ended. Blocking, so it runs on a worker thread."""

    def __init__(
        self, agent: LogReader, task: Task, framework_id: str, *, as_root: bool, nested: bool = False
    ) -> None:
        """Read nothing yet. `as_root`: the task ran as root; `nested`: in a container below that of its executor."""
        self._agent, self._task, self._as_root = agent, task, as_root
        self._framework_id = framework_id
        self._bases = self._places(nested)
        self._base = next(self._bases)
        self._skipped, self._left = 0, MOST_ENTRIES
        self._files = self._bytes = self._faults = 0

    def listed(self, path: Path) -> Iterator[bytes]:
        """What is at a path, and if it is a directory the names in it.

        Raises:
            NotFound: There is nothing that the task could have read.
            Unavailable: The agent does not answer, or not as Mesos does.
        """
        root = self._find(path)
        yield tree.entry(self._shown(root))
        for each in self._inner(path) if root.kind == "dir" else ():
            why = self._unreadable(each) or (_ELSEWHERE if self._leads_out(each) else "")
            yield self._leave(each, why) if why else tree.entry(self._shown(each))
        yield tree.done(Done(0, 0, 0))

    def sent(self, path: Path) -> Iterator[bytes]:
        """All that is at a path.

        Raises:
            NotFound, Unavailable: As of `listed`.
        """
        root = self._find(path)
        yield from self._directory(root, ()) if root.kind == "dir" else self._file(root)
        yield tree.done(Done(self._files, self._bytes, self._faults))

    def _find(self, path: Path) -> Entry:
        """The entry of a path, each part of which the task could have read."""
        self._skipped, at = len(path), Entry((), "dir", 0o755)
        for depth, name in enumerate(path):
            above = self._inner(path[:depth]) if at.kind == "dir" else []
            there = next((each for each in above if each.path[-1] == name), None)
            why = "there is nothing of that name" if there is None else self._unreadable(there)
            if there is None or why or self._leads_out(there):
                shown = "/".join(path[: depth + 1])
                what = f"{shown} cannot be had from the sandbox of {self._task.id}: {why or _ELSEWHERE}"
                raise NotFound(what, remedy=f"see what is there: mesos-gpu ls {self._task.id}")
            at = there
        return at

    def _unreadable(self, each: Entry) -> str:
        """Why an entry is left out; "": it is not. Its `uid` is 0 if it is root's, and else -1."""
        if each.kind == "other":
            return _ELSEWHERE if self._leads_out(each) else "it is neither a file nor a directory"
        needed = 0o005 if each.kind == "dir" else 0o004
        if self._as_root or each.uid != 0 or each.mode & needed == needed:
            return ""
        return _ELSEWHERE if self._leads_out(each) else "it is root's, and the job could not read it"

    def _leads_out(self, each: Entry) -> bool:
        return self._browsed(each.path) is None

    def _directory(self, each: Entry, above: tuple[object, ...]) -> Iterator[bytes]:
        """All of a directory. `above`: what the lists of those have that it is in: one that is alike is one of them."""
        try:
            inner = self._browsed(each.path)
        except (NotFound, Unavailable) as error:
            if not above:
                raise  # nothing of it is told yet
            yield self._fault(each, error.what)
            return
        alike = inner and [replace(one, path=one.path[-1:]) for one in inner]
        if inner is None or (alike and alike in above) or len(above) >= tree.MOST_DEPTH:
            yield self._leave(
                each, _ELSEWHERE if inner is None else "it leads back to a directory that it is in"
            )
            return
        yield tree.entry(self._shown(each))
        for one in inner:
            self._left -= 1
            if self._left < 0:
                yield self._fault(each, f"there are more than {MOST_ENTRIES} files: copy it in parts")
                return
            if why := self._unreadable(one):
                yield self._leave(one, why)
            else:
                yield from self._directory(one, (*above, alike)) if one.kind == "dir" else self._file(one)

    def _file(self, each: Entry) -> Iterator[bytes]:
        """A file, as soon as the agent gives it."""
        sent = 0
        try:
            with self._agent.fetch(
                self._task, "/files/download", self._query(each.path), stream=True
            ) as response:
                if response.status_code == _REFUSED:
                    yield self._leave(each, _ELSEWHERE)
                    return
                if not response.ok:
                    raise Unavailable(f"the agent answers {response.status_code}", remedy="see its log")
                yield tree.entry(self._shown(each))
                for piece in response.iter_content(_PIECE):
                    sent += len(piece)
                    yield tree.data(piece)
        except (Unavailable, requests.RequestException) as error:
            yield self._fault(each, error.what if isinstance(error, Unavailable) else type(error).__name__)
            return
        yield tree.end()
        self._files += 1
        self._bytes += sent

    def _leave(self, each: Entry, why: str) -> bytes:
        return tree.said(Mark.LEFT, Said(each.path[self._skipped :], why))

    def _fault(self, each: Entry, why: str) -> bytes:
        self._faults += 1
        return tree.said(Mark.FAULT, Said(each.path[self._skipped :], why))

    def _shown(self, each: Entry) -> Entry:
        return replace(each, path=each.path[self._skipped :], uid=-1)

    # --- of the agent

    def _places(self, nested: bool) -> Iterator[str]:
        """Where its files may be: by the path that agents forget, then by the directory's own; those of a nested
        container below its executor's, or there if that container was never begun."""
        for below in (_NESTED, "") if nested else ("",):
            yield f"/frameworks/{self._framework_id}/executors/{self._task.executor_id}/runs/latest{below}"
            yield self._agent.directory(self._task, self._framework_id) + below

    def _inner(self, path: Path) -> list[Entry]:
        inner = self._browsed(path)
        if inner is None:
            raise NotFound(f"{'/'.join(path)} cannot be had: {_ELSEWHERE}", remedy="name another path")
        return inner

    def _browsed(self, path: Path) -> list[Entry] | None:
        """What is in a directory, by name; of a file nothing. None: it is a link that leads out of the sandbox."""
        response = self._agent.fetch(self._task, "/files/browse", self._query(path))
        if response.status_code == _GONE and (base := next(self._bases, None)) is not None:
            self._base = base
            return self._browsed(path)
        if response.status_code == _GONE:
            what = f"the sandbox of {self._task.id} is gone from {self._task.hostname}, or {'/'.join(path)} in it"
            raise NotFound(
                what,
                remedy="agents delete old sandboxes; raise --gc_delay of mesos-agent to keep them longer",
            )
        if response.status_code == _REFUSED:
            return None
        try:
            entries = [_entry_of(path, each) for each in self._agent.value_of(self._task, response)]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            what = f"what answers at {self._task.agent_url} is no Mesos agent: {error!r}"
            raise Unavailable(what, remedy="look at that host") from error
        return sorted(entries, key=lambda each: each.path)

    def _query(self, path: Path) -> dict[str, str | int | bytes]:
        names = [part.encode(errors="surrogateescape") for part in path]
        return {"path": b"/".join((self._base.encode(), *names))}


def path_of(text: str) -> Path:
    """The names of a path in a sandbox.

    Raises:
        Refusal: It is outside, or none.
    """
    if f"{text}/".startswith(f"{_IN_IMAGES}/"):
        text = text.removeprefix(_IN_IMAGES).lstrip("/")
    outside = invalid(Problem("/path", f"must be in the sandbox when a job has ended, got {text[:200]!r}"))
    names: list[str] = []
    if text.startswith("/"):
        raise outside
    for name in text.split("/"):
        if name == ".." and names:
            names.pop()
        elif name == ".." or (name not in ("", ".") and not tree.is_name(name)):
            raise outside
        elif name not in ("", "."):
            names.append(name)
    if len(names) > tree.MOST_DEPTH:
        raise invalid(Problem("/path", f"has more than {tree.MOST_DEPTH} names"))
    return tuple(names)


def _entry_of(above: Path, told: dict[str, Any]) -> Entry:
    """What `/files/browse` tells of a name: `mode` is as ls(1) writes it."""
    name = str(told["path"]).rpartition("/")[2].encode("latin-1").decode(errors="surrogateescape")
    if not tree.is_name(name):
        raise ValueError(f"{name!r} is no name")
    mode = str(told["mode"])
    bits = sum(1 << (8 - at) for at, letter in enumerate(mode[1:10]) if letter not in "-ST")
    uid = 0 if told.get("uid") in ("root", "0") else -1
    changed_ns = max(int(float(told["mtime"]) * 1e9), 0)
    return Entry((*above, name), _KINDS.get(mode[:1], "other"), bits, int(told["size"]), changed_ns, uid=uid)
