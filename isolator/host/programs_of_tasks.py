"""Reasons why a task's program cannot be executed on the host: a file that is missing, or closed to the
task's user.

The program is searched after the start has failed, from outside of the task: the texts help users, and decide
nothing. Programs that the task's shell could not start are searched too, by the exit statuses of POSIX,
2.8.2.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final

from isolator.host.sandbox import Sandbox

MAX_NAMES: Final = 12  # most files of the sandbox that are listed
_MAX_LINE: Final = 256  # bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE)
_MAX_LINKS: Final = 40  # MAXSYMLINKS of the kernel
_MAX_COMMAND: Final = 16384  # most characters of a shell's command that are parsed
_MAX_PROGRAMS: Final = 16  # most programs of a shell's command that are searched
_MAX_PLACES: Final = 64  # most directories of PATH that are searched
_LOOK_S: Final = 0.2  # for all programs of a command, as the task's GPUs are claimed meanwhile
_NOT_EXECUTED: Final = 126
#: Words of a shell that precede another command.
_BEFORE: Final = frozenset(
    {"!", "{", "if", "then", "else", "elif", "while", "until", "do", "exec", "command", "time", "nohup"}
)
#: Constructs of a shell after which the directory or program of later words is unknown.
_CHANGES: Final = re.compile(
    r"\(\)|\$\(|`|<<|\b(PATH=|alias|function|cd|pushd|source|eval|activate)|(^|[;&|]\s*)\.\s"
)


class _TooLate(Exception):
    """The search for programs took too long."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start that failed.

    The job chooses the command, PATH and the lengths of both, so that the search for its programs is bounded.

    Attributes:
        program: First word of the command.
        sandbox: Directory of the task.
        env: Environment of the task.
        user: uid, gid and supplementary groups of the task.
        private: Directories that are private to each task.
        deadline: Time of `time.monotonic` at which the search is given up; infinite for none.
    """

    program: str
    sandbox: str
    env: Mapping[str, str]
    user: tuple[int, int, tuple[int, ...]]
    private: tuple[str, ...] = ()
    deadline: float = float("inf")

    @property
    def path(self) -> str:
        """The PATH of the task."""
        return self.env.get("PATH", os.defpath)

    def private_place(self, path: str) -> str:
        """Return the private directory that contains a path; "" if none does."""
        return next((place for place in self.private if path.startswith(f"{place}/")), "")

    def is_in(self, directory: str) -> bool:
        """Return whether the task starts in a directory or below it, so that it is there whatever the modes
        (acl(5)).
        """
        return f"{os.path.realpath(self.sandbox)}/".startswith(f"{directory}/")

    def check_time(self) -> None:
        """Raise `_TooLate` after the deadline."""
        if time.monotonic() > self.deadline:
            raise _TooLate

    def candidates(self, program: str) -> Iterator[str]:
        """Yield the paths that are tried for a program, in their order."""
        for directory in [""] if "/" in program else self.path.split(":")[:_MAX_PLACES]:
            self.check_time()
            yield os.path.join(self.sandbox, directory, program)


def why_absent(start: Start) -> str:
    """Return where a program was searched, and how to provide it; the text follows the kernel's."""
    if any(character.isspace() for character in start.program):
        return "; it is one argument with spaces: for a line of a shell, run -- sh -c 'LINE'"
    if closed := next(_private(start), None):
        return (
            f": {closed} of the host is not visible to the task, which has a private {start.private_place(closed)}; "
            "send files along with --upload [DIR], or name their directory with --volume"
        )
    if "/" not in start.program:
        if any(_at(path, start) is _Place.THERE for path in start.candidates(start.program)):
            return f": {_interpreter_words(start)}"
        other = f"{start.program}3"
        is_there = any(os.access(path, os.X_OK) for path in start.candidates(other))
        return f" in PATH ({start.path})" + (f"; there is {other}" if is_there else "")
    if start.program.startswith("/"):
        there = os.path.lexists(start.program)
        return f": {_interpreter_words(start)}" if there else " on this host; an --image has its own programs"
    with Sandbox(start.sandbox) as place:
        names = place.names()
    if start.program.removeprefix("./") in names:
        return f": {_interpreter_words(start)}"
    held = ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
    return (
        f"; searched in the sandbox {start.sandbox}, which contains {held}. Send files there with --upload [DIR] or "
        "--fetch URI, and mount paths of the host with --volume"
    )


def why_denied(start: Start) -> str:
    """Return which file or directory keeps the task's user from the program; "" if none is found."""
    paths = (path for path in start.candidates(start.program) if _at(path, start) is not _Place.ABSENT)
    path = next(paths, None)
    if path is None:
        return ""
    if words := _closed(path, start):
        return f": {words}"
    interpreter = _interpreter(path)
    words = _closed(interpreter, start) if interpreter else ""
    return f": its first line names {interpreter}, but {words}" if words else ""


def _private(start: Start) -> Iterator[str]:
    """Yield the program's paths that exist on the host, but in a directory that is private to each task."""
    for path in start.candidates(start.program):
        if _is_private(path, start) and _at(path, start) is _Place.THERE:
            yield path


def _is_private(path: str, start: Start) -> bool:
    return bool(start.private_place(path)) and not path.startswith(f"{start.sandbox}/")


class _Place(Enum):
    """State of a path of the host, as far as the task's user may know."""

    THERE = "there"
    ABSENT = "absent"
    CLOSED = "closed"  # a directory on the way is closed to the user


def _at(path: str, start: Start) -> _Place:
    """Return the state of a path for the task's user."""
    for place in _way(path):
        start.check_time()
        try:
            status = os.stat(place, follow_symlinks=False)
        except OSError:
            return _Place.ABSENT
        if stat.S_ISDIR(status.st_mode) and not start.is_in(place) and not _may_execute(status, start.user):
            return _Place.CLOSED
    return _Place.THERE


def _interpreter_words(start: Start) -> str:
    """Return why the interpreter in a script's first line cannot be executed."""
    interpreter = next(filter(None, map(_interpreter, start.candidates(start.program))), "")
    place = start.private_place(interpreter)
    if _is_private(interpreter, start) and _at(interpreter, start) is _Place.THERE:
        return f"its first line names {interpreter} of the host, but a task has a private {place}"
    return f"its first line names {interpreter or 'a program'}, which does not exist"


def _interpreter(path: str) -> str:
    """Return the program that the first line of a script names; "" if the file is not a script, or cannot be
    read.
    """
    return next(iter(_first_line(path)), "")


def _program_of_env(path: str) -> str:
    """Return the program that env(1) executes for a script, python for "#!/usr/bin/env python"; "" for others."""
    words = _first_line(path)
    if not words or os.path.basename(words[0]) != "env":
        return ""
    return next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")


def _first_line(path: str) -> list[str]:
    """Return the words of a script's first line; empty if the file is not a script, or cannot be read."""
    try:
        held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.stat(held).st_mode):  # opening a device may have effects
            return []
        with open(f"/proc/self/fd/{held}", "rb", buffering=0) as file:
            line = file.read(_MAX_LINE).partition(b"\n")[0]
    except OSError:
        return []
    finally:
        os.close(held)
    return [os.fsdecode(word) for word in line[2:].split()] if line.startswith(b"#!") else []


def _closed(path: str, start: Start) -> str:
    """Return what keeps the user from executing a file: its mode, or a directory on the way; "" if nothing is found."""
    for place in _way(path):
        start.check_time()
        try:
            status = os.stat(place, follow_symlinks=False)
        except OSError as error:
            return f"{place}: {error.strerror}"
        if stat.S_ISLNK(status.st_mode) or start.is_in(place):
            continue
        is_last = place == os.path.realpath(path)
        if is_last and stat.S_ISDIR(status.st_mode):
            return f"{place} is a directory"
        if not _may_execute(status, start.user):
            mode = f"mode {stat.S_IMODE(status.st_mode):04o}, owner uid {status.st_uid}"
            what = "execute" if is_last else "pass"
            return f"uid {start.user[0]} may not {what} {place} ({mode})"
    return ""


def _way(path: str) -> Iterator[str]:
    """Yield the directories, links and the file that the kernel passes on a path, in their order."""
    left, done, links = path.split("/"), "", 0
    while left:
        name = left.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            done = os.path.dirname(done)
            continue
        done = f"{done}/{name}"
        yield done
        if os.path.islink(done):
            links += 1
            if links > _MAX_LINKS:
                return
            target = os.readlink(done)
            left = [*target.split("/"), *left]
            done = "" if target.startswith("/") else os.path.dirname(done)


def _may_execute(status: os.stat_result, user: tuple[int, int, tuple[int, ...]]) -> bool:
    uid, gid, groups = user
    if uid == 0:
        return stat.S_ISDIR(status.st_mode) or bool(status.st_mode & 0o111)
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid in (gid, *groups):
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def words_of(number: int | None, start: Start) -> str:
    """Return an explanation of an error of execve(2), to follow the kernel's text."""
    if number in (errno.ENOENT, errno.ENOTDIR):
        return why_absent(start)
    return why_denied(start) if number == errno.EACCES else ""


def words_of_exit(status: int, command: str | None, start: Start) -> str:
    """Return which program a task could not execute, and why, by the exit status of its shell or of env(1).

    Args:
        status: Exit status of the task, 126 or 127.
        command: Command of the task's shell; None if the task executed `start.program` itself.
        start: Start of the task, which succeeded.

    Returns:
        The text; "" if no such program is found, or not in time.
    """
    start = replace(start, deadline=time.monotonic() + _LOOK_S)
    try:
        return _words_of_programs(status, [start.program] if command is None else _programs(command), start)
    except _TooLate:
        return ""


def _words_of_programs(status: int, programs: list[str], start: Start) -> str:
    for program in programs:
        tried = replace(start, program=program)
        if words := _words_of(status, tried):
            return words
        path = next((place for place in tried.candidates(program) if _at(place, tried) is _Place.THERE), "")
        by_env = replace(start, program=_program_of_env(path))
        if by_env.program and (words := _words_of(status, by_env)):
            return f"the first line of {program} names env, but {words}"
    return ""


def _words_of(status: int, start: Start) -> str:
    """Return why one program cannot be executed; "" if it can, or the reason is unknown."""
    if _is_absent(start):
        return f"{start.program!r} cannot be executed: {os.strerror(errno.ENOENT)}{why_absent(start)}"
    words = why_denied(start) if status == _NOT_EXECUTED else ""
    return f"{start.program!r} cannot be executed: {os.strerror(errno.EACCES)}{words}" if words else ""


def _is_absent(start: Start) -> bool:
    """Return whether the task does not have the program, or the interpreter of its first line."""

    def seen(path: str) -> _Place:
        return _Place.ABSENT if _is_private(path, start) else _at(path, start)

    for path in start.candidates(start.program):
        if (place := seen(path)) is _Place.THERE:
            interpreter = _interpreter(path)
            return bool(interpreter) and seen(os.path.join(start.sandbox, interpreter)) is _Place.ABSENT
        if place is _Place.CLOSED:
            return False
    return True


def _programs(command: str) -> list[str]:
    """Return the programs that a simple shell command executes, as far as they are plain words; empty for
    other commands.
    """
    import shlex  # deferred: needed only for tasks that failed so

    if len(command) > _MAX_COMMAND or _CHANGES.search(command):
        return []
    programs: list[str] = []
    words = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars="();&|<>")
    words.whitespace_split, words.commenters = True, "#"
    at_program = True
    try:
        for word in words:
            if word and set(word) <= set("();&|"):
                at_program = True
            elif at_program and not (word in _BEFORE or re.match(r"\w+=", word)):
                programs.append(word)
                at_program = False
    except ValueError:  # a quotation is not closed
        return []
    plain = (
        word
        for word in dict.fromkeys(programs)
        if word not in _OWN and re.fullmatch(r"[\w./+-]+", word) and re.search(r"[a-zA-Z]", word)
    )
    return list(islice(plain, _MAX_PROGRAMS))


#: Builtins of shells (POSIX, 2.14, and usual ones).
_OWN: Final = frozenset(
    {
        "alias", "bg", "break", "builtin", "case", "continue", "declare", "done", "echo", "esac", "eval",
        "exit", "export", "false", "fc", "fg", "fi", "for", "getopts", "hash", "in", "jobs", "kill", "let",
        "local", "printf", "pwd", "read", "readonly", "return", "select", "set", "shift", "shopt", "test",
        "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
    }
)  # fmt: skip
