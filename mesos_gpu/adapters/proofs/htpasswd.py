"""File of names and bcrypt hashes, as `htpasswd -B` writes it; changes take effect without a restart.

At the start all lines must be valid. Later an invalid line is ignored, while the others still count; if the whole file
becomes unusable (unreadable, or open to changes by others), no password is accepted, because earlier entries may have
been revoked.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mesos_gpu.access.proofs import may_be_name
from mesos_gpu.adapters.files import private
from mesos_gpu.adapters.files.stamp import stamp_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.words import counted

LOOK_S: Final = 1.0  # between two checks of the file for changes
MIN_COST: Final = 10  # hashes below it are guessed quickly from a stolen file: a warning, not an error
MAX_COST: Final = 16  # 2^16 rounds: seconds
_MAX_BYTES: Final = 4 << 20
_HASH: Final = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
logger = logging.getLogger("mesos_gpu.login")


class Htpasswd:
    """Current content of the file.

    Args:
        path: Path of the file.
        clock: Function that returns monotonic time in seconds.

    Raises:
        BadConfiguration: The file cannot be read, others may change it, or lines are invalid: all are named.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock, self._looked_at = path, clock, clock()
        self._stamp = stamp_of(path)
        self._lines, wrong = _read(path)
        if wrong:
            what = f"{path}: {counted(len(wrong), 'line')} cannot be used: {'; '.join(wrong[:20])}"
            raise BadConfiguration(
                what, remedy=f"rewrite them with htpasswd -B -C 12 {path} NAME, or remove them"
            )
        self._warn()

    def hashes(self) -> Mapping[str, str]:
        """Return the hash of each name, after rereading the file if it has changed."""
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            stamp = stamp_of(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._reload()
        return self._lines

    def _reload(self) -> None:
        try:
            self._lines, wrong = _read(self._path)
        except BadConfiguration as error:
            self._lines = {}
            logger.error("no password is accepted: %s", error.what)
            return
        for problem in wrong:
            logger.error("%s: an invalid line is ignored: %s", self._path, problem)
        self._warn()

    def _warn(self) -> None:
        cheap = sum(cost_of(line) < MIN_COST for line in self._lines.values())
        if cheap:
            names = counted(cheap, "password")
            logger.warning(
                "%s: %s could be guessed quickly: rewrite them with htpasswd -B -C 12", self._path, names
            )


def cost_of(line: str) -> int:
    """Return the cost of a hash: the base-2 logarithm of its number of rounds."""
    return int(line[4:6])


def _read(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return hashes by name, and the problems of invalid lines."""
    lines: dict[str, str] = {}
    wrong: list[str] = []
    for number, text in enumerate(_text(path).splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        name, _, line = text.partition(":")
        problem = _problem(name, line, lines)
        if problem:
            wrong.append(f"line {number}: {problem}")
        else:
            lines[name] = line
    return lines, wrong


def _problem(name: str, line: str, lines: Mapping[str, str]) -> str:
    if not may_be_name(name):
        return "there is no valid name before a colon"
    if name in lines:
        return f"{name!r} has a line already"
    match = _HASH.fullmatch(line)
    if not match:
        return f"the text after {name!r} is not a bcrypt hash ($2y$ or $2b$)"
    if not 4 <= int(match[1]) <= MAX_COST:
        return f"the cost of the hash of {name!r} is not from 4 to {MAX_COST}"
    return ""


def _text(path: Path) -> str:
    try:
        text = private.read(path, forbidden=private.WRITABLE, most_bytes=_MAX_BYTES + 1).decode()
    except private.Exposed as error:
        remedy = f"chown {os.geteuid()} {path}; chmod 640 {path}; and check its content"
        raise BadConfiguration(f"{path}: {error.strerror}", remedy=remedy) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadConfiguration(f"{path}: {why}", remedy="give a readable file with --htpasswd") from error
    if len(text) > _MAX_BYTES:
        raise BadConfiguration(f"{path} is larger than {_MAX_BYTES} bytes", remedy="name another file")
    return text
