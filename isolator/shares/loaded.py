"""CUDA libraries and driver files that the processes of a task have open, read from /proc.

A process may have millions of mappings and descriptors, and can block readers of its /proc files: its memory
is locked while a file system of its own fetches a page. So the reading is done in another thread, within
limits of time and size.
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

LOOK_S: Final = 0.5  # for one process
_ALL_S: Final = 1.0  # for all processes of all tasks; processes not reached are first at the next look
_MAX_BYTES: Final = 16 << 20  # size of a list of mappings; PyTorch's takes 0.5 MB
_MAX_DESCRIPTORS: Final = 65536
#: Read even after the deadline, so that a busy host does not make a task suspicious.
_FEW_BYTES: Final = 2 << 20
_FEW_DESCRIPTORS: Final = 4096
_MAX_FILES: Final = 64
_MAX_WAITING: Final = 4  # threads blocked by processes of one task that cannot be read
_CHUNK: Final = 1 << 16
#: proc_pid_maps(5): addresses, rights, offset, device, inode, path.
_MAPPING: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE
)
_Process = tuple[int, int | None]  # pid and start time


@dataclass(frozen=True, slots=True)
class Loaded:
    """CUDA use of one process.

    Attributes:
        computes: Whether the driver works for the process.
        libraries: Mapped files with a libcuda's name, each with device and inode.
        problem: Reason why the reading is incomplete; "" if it is complete.
    """

    computes: bool = False
    libraries: Collection[tuple[str, File]] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A request to read the CUDA use of one process.

    Attributes:
        pid: Process to read.
        names: Prefixes of the file names of libcuda.
        major: Major device number of /dev/nvidia-uvm, which CUDA opens and NVML does not; None if the driver
            is not loaded.
        computes: Whether the driver reports the process as computing.
        until: Deadline on the monotonic clock; a reading that exceeds it is incomplete.
    """

    pid: int
    names: tuple[str, ...]
    major: int | None
    computes: bool
    until: float


_SILENT: Final = Loaded(problem="it does not answer")


def read(question: Question) -> Loaded:
    """Read the CUDA use of a process; empty if it has ended, may not be read, or does not use CUDA."""
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
    """Return the mapped files with these names; None if the process has ended, so its descriptors are about
    to be closed.
    """
    begins = tuple(name.encode() for name in question.names)
    files: dict[tuple[bytes, File], tuple[str, File]] = {}
    has_lines = False
    for lines in _lines(question):
        has_lines = True
        for low, high, major, minor, inode, path in (
            _MAPPING.findall(lines) if any(begin in lines for begin in begins) else ()
        ):
            listed = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            if path.rpartition(b"/")[2].startswith(begins) and (path, listed) not in files:
                at = f"{int(low, 16):x}-{int(high, 16):x}"
                files[path, listed] = os.fsdecode(path), _file(question.pid, at, listed)
        if len(files) > _MAX_FILES:
            raise _TooMuchError("it has mapped more libraries of that name than are looked at")
    return frozenset(files.values()) if has_lines else None


def _lines(question: Question) -> Iterator[bytes]:
    """Yield the list of mappings of a process, many whole lines at a time."""
    left, rest = _MAX_BYTES, b""
    with open(f"/proc/{question.pid}/maps", "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            left -= len(chunk)
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            yield whole
            if left < 0 or (left < _MAX_BYTES - _FEW_BYTES and time.monotonic() > question.until):
                raise _TooMuchError("it has more mappings than are looked at")


def _file(pid: int, at: str, listed: File) -> File:
    """Return device and inode of the file mapped at these addresses, as stat(2) has them.

    Args:
        at: Address range, the name of a link in map_files.
        listed: Device and inode in the list of mappings, whose device differs for files of overlay and btrfs.
    """
    try:
        status = os.stat(f"/proc/{pid}/map_files/{at}")
    except OSError:  # unmapped meanwhile, or map_files is not readable in this kernel or container
        return listed
    return status.st_dev, status.st_ino


def _has_driver(question: Question) -> bool:
    """Return whether the process has the driver's device for CUDA open."""
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


class ProcessInspector:
    """Inspector of the processes of tasks; those not inspected for longest come first.

    Args:
        real: File name of the driver's own libcuda, beside ours.
        ask: Function that reads the CUDA use of a process.
    """

    def __init__(self, real: str, ask: Callable[[Question], Loaded] = read) -> None:
        self._real, self._ask = real, ask
        # time of the last look, and the complaint ("" if none)
        self._found: dict[_Process, tuple[float, str]] = {}
        self._waiting: dict[_Process, tuple[threading.Thread, list[Loaded]]] = {}

    def look(
        self,
        tasks: Iterable[Collection[int]],
        computing: Collection[int],
        ours: frozenset[File],
        major: int | None,
    ) -> dict[int, str]:
        """Return the processes whose CUDA does not enforce their share, each with a complaint in words.

        Args:
            tasks: Processes of each task whose share our libraries enforce.
            computing: Processes that the driver reports as computing.
            ours: Device and inode of each of our libcudas.
            major: Major device number, as in `Question`.
        """
        began = time.monotonic()
        groups = [{(pid, start_ticks(pid)) for pid in task} for task in tasks]
        group_of = {process: group for group in groups for process in group}
        self._found = {process: self._found.get(process, (began, "")) for process in group_of}
        late = {
            process: answers for process, (thread, answers) in self._waiting.items() if not thread.is_alive()
        }
        self._waiting = {
            process: waiting for process, waiting in self._waiting.items() if process not in late
        }
        for process in self._in_turn(groups):
            now = time.monotonic()
            if now > began + _ALL_S:
                break
            pid = process[0]
            question = Question(pid, ("libcuda.so", self._real), major, pid in computing, now + LOOK_S)
            # the answer to the question of the last look: a process that is slow each time is found so
            answer = late.get(process)
            seen = answer[0] if answer else self._seen(process, group_of[process], question)
            before = self._found[process][1]
            self._found[process] = now, before if seen is None else self._verdict(seen, ours)
        return {pid: what for (pid, _), (_, what) in self._found.items() if what}

    def _in_turn(self, groups: Iterable[Collection[_Process]]) -> list[_Process]:
        """Return the processes in the order of inspection: one of each task, then a second of each, and so
        on.

        Within a task, the one that was inspected, or came, longest ago is first. So a task that creates
        processes without end hides neither its own processes nor those of other tasks.
        """
        queues = [sorted(group, key=lambda process: self._found[process][0]) for group in groups]
        queues.sort(key=lambda queue: self._found[queue[0]][0] if queue else 0.0)
        return [process for rank in zip_longest(*queues) for process in rank if process is not None]

    def _seen(self, process: _Process, group: Collection[_Process], question: Question) -> Loaded | None:
        """Return the CUDA use of a process; None if reading takes long this time, which may be the host's
        fault.
        """
        if process in self._waiting or len(self._waiting.keys() & group) >= _MAX_WAITING:
            return _SILENT
        answers: list[Loaded] = []
        thread = threading.Thread(target=lambda: answers.append(self._ask(question)), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the host cannot start another thread now
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
