"""What of CUDA the processes of a task have: which libcuda is mapped, and whether the driver is open.

A process may have millions of mappings and descriptors, and may make whoever reads of it in /proc wait: its memory is
locked while a file system of its own brings a page. So another thread reads, so much and so long and no more.
"""

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from isolator.host.processes import living_thread
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.policy.sharing.excess import File, foreign

LOOK_S: Final = 0.5  # at one process
_ALL_S: Final = 1.0  # at all processes of all tasks; who is left is the first of the next look
_MAX_BYTES: Final = 16 << 20  # of the list of mappings; PyTorch's takes 0.5 MB
_MAX_DESCRIPTORS: Final = 65536
#: So much is read however late it is: a host that is busy makes nobody suspicious.
_FEW_BYTES: Final = 2 << 20
_FEW_DESCRIPTORS: Final = 4096
_MAX_FILES: Final = 64
_MAX_WAITING: Final = 4  # threads that wait for processes of one task which do not let themselves be read
_CHUNK: Final = 1 << 16
#: proc_pid_maps(5): addresses, rights, offset, device, inode, path.
_MAPPING: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE
)
_Process = tuple[int, int | None]  # pid and start


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a process has.

    Attributes:
        computes: Whether the driver works for it.
        libraries: Files that it has mapped and that are named as a libcuda is, each with device and inode.
        problem: Why more of it could not be seen, in words; "": this is all.
    """

    computes: bool = False
    libraries: Collection[tuple[str, File]] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a process.

    Attributes:
        pid: The process.
        names: How the names of files begin that are libcuda's.
        major: The device number of the driver's memory of CUDA (/dev/nvidia-uvm), which NVML leaves alone; None: the
            driver is not loaded.
        computes: Whether the driver says that it works for it.
        until: On the monotonic clock; what is not seen then is a problem.
    """

    pid: int
    names: tuple[str, ...]
    major: int | None
    computes: bool
    until: float


_SILENT: Final = Loaded(problem="it does not answer")


def read(question: Question) -> Loaded:
    """Read what a process has; nothing, if it has ended, is not ours to read, or has nothing to do with CUDA."""
    try:
        question = replace(question, pid=living_thread(question.pid))
        is_open = _has_driver(question)
        if not (is_open or question.computes):
            return Loaded()
        libraries = _mapped(question)
        if libraries is None:
            return Loaded()
        if is_open and not libraries:  # it may have become another program meanwhile (execve(2))
            is_open = _has_driver(question)
    except _TooMuchError as error:
        return Loaded(problem=str(error))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return Loaded()
    except OSError as error:
        return Loaded(problem=str(error))
    return Loaded(is_open or question.computes, libraries)


class _TooMuchError(Exception):
    """More than is looked at."""


def _mapped(question: Question) -> frozenset[tuple[str, File]] | None:
    """Files of these names that it has mapped; None: it has ended, and its descriptors are about to be closed."""
    begins = tuple(name.encode() for name in question.names)
    files: dict[tuple[bytes, File], tuple[str, File]] = {}
    has_lines = False
    for lines in _lines(question):
        has_lines = True
        for low, high, major, minor, inode, path in (
            _MAPPING.findall(lines) if any(begin in lines for begin in begins) else ()
        ):
            told = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            if path.rpartition(b"/")[2].startswith(begins) and (path, told) not in files:
                at = f"{int(low, 16):x}-{int(high, 16):x}"
                files[path, told] = os.fsdecode(path), _file(question.pid, at, told)
        if len(files) > _MAX_FILES:
            raise _TooMuchError("it has mapped more libraries of that name than are looked at")
    return frozenset(files.values()) if has_lines else None


def _lines(question: Question) -> Iterator[bytes]:
    """Whole lines of its list of mappings, many at a time."""
    left, rest = _MAX_BYTES, b""
    with open(f"/proc/{question.pid}/maps", "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            left -= len(chunk)
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            yield whole
            if left < 0 or (left < _MAX_BYTES - _FEW_BYTES and time.monotonic() > question.until):
                raise _TooMuchError("it has more mappings than are looked at")


def _file(pid: int, at: str, told: File) -> File:
    """Device and inode of what is mapped at addresses, as stat has them; `told`: as the list of mappings does, whose
    device is another one for files of overlay and btrfs."""
    try:
        status = os.stat(f"/proc/{pid}/map_files/{at}")
    except OSError:  # it was unmapped meanwhile; or this kernel, or this container, does not show them
        return told
    return status.st_dev, status.st_ino


def _has_driver(question: Question) -> bool:
    if question.major is None:
        return False
    with os.scandir(f"/proc/{question.pid}/fd") as descriptors:
        for count, entry in enumerate(descriptors):
            if count > _MAX_DESCRIPTORS or (count > _FEW_DESCRIPTORS and time.monotonic() > question.until):
                raise _TooMuchError("it has more files open than are looked at")
            with contextlib.suppress(OSError):  # closed meanwhile
                status = entry.stat()
                if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == question.major:
                    return True
    return False


class Looker:
    """Looks at the processes of tasks, those first at which it has not looked for longest."""

    def __init__(self, real: str, ask: Callable[[Question], Loaded] = read) -> None:
        """Nothing is known.

        Args:
            real: What the driver's own libcuda is called beside ours.
            ask: Reads what a process has.
        """
        self._real, self._ask = real, ask
        self._found: dict[_Process, tuple[float, str]] = {}  # when it was looked at, and what there is to say
        self._waiting: dict[_Process, tuple[threading.Thread, list[Loaded]]] = {}

    def look(
        self,
        tasks: Iterable[Collection[int]],
        computing: Collection[int],
        ours: frozenset[File],
        major: int | None,
    ) -> dict[int, str]:
        """Which processes have a CUDA that does not keep their share, each with what there is to say.

        Args:
            tasks: The processes of each task whose share is kept by our libraries.
            computing: Those for which the driver says that it works.
            ours: Device and inode of each of our libcudas.
            major: As of `Question`.
        """
        began = time.monotonic()
        groups = [{(pid, start_ticks(pid)) for pid in task} for task in tasks]
        group_of = {process: group for group in groups for process in group}
        self._found = {each: self._found.get(each, (began, "")) for each in group_of}
        late = {each: said for each, (thread, said) in self._waiting.items() if not thread.is_alive()}
        self._waiting = {each: known for each, known in self._waiting.items() if each not in late}
        for process in self._in_turn(groups):
            now = time.monotonic()
            if now > began + _ALL_S:
                break
            pid = process[0]
            question = Question(pid, ("libcuda.so", self._real), major, pid in computing, now + LOOK_S)
            answer = late.get(process)  # to the last look: who takes long each time is seen by that
            seen = answer[0] if answer else self._seen(process, group_of[process], question)
            before = self._found[process][1]
            self._found[process] = now, before if seen is None else self._verdict(seen, ours)
        return {pid: what for (pid, _), (_, what) in self._found.items() if what}

    def _in_turn(self, groups: Iterable[Collection[_Process]]) -> list[_Process]:
        """Take one process of each task, then the next of each: first whoever was looked at, or came, longest ago.
        So a task that makes processes without end hides neither the others' nor its own."""
        queues = [sorted(group, key=lambda each: self._found[each][0]) for group in groups]
        queues.sort(key=lambda queue: self._found[queue[0]][0] if queue else 0.0)
        return [process for rank in zip_longest(*queues) for process in rank if process is not None]

    def _seen(self, process: _Process, group: Collection[_Process], question: Question) -> Loaded | None:
        """What a process has; None: that takes long this time, which may be the host's fault."""
        if process in self._waiting or len(self._waiting.keys() & group) >= _MAX_WAITING:
            return _SILENT
        answers: list[Loaded] = []
        thread = threading.Thread(target=lambda: answers.append(self._ask(question)), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the host has no room for one now
            return None
        thread.join(2 * LOOK_S)
        if thread.is_alive():
            self._waiting[process] = thread, answers
        return answers[0] if answers else None

    def _verdict(self, seen: Loaded, ours: frozenset[File]) -> str:
        if seen.problem:
            return f"cannot be looked at: {seen.problem}"
        if path := foreign(seen.libraries, ours, self._real):
            return f"has loaded {path}, which is not the libcuda that keeps its share"
        if seen.computes and ours.isdisjoint(file for _, file in seen.libraries):
            return "has the driver open without the libcuda that keeps its share: its CUDA is not ours"
        return ""
