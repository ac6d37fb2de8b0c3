"""What tasks wrote and what the kernel says of their locks."""

import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.work import SLOTS_OF_CARD

WORK: Final = Path(__file__).with_name("work.py")
ENDLESS_S: Final = 100_000


@dataclass(frozen=True, slots=True)
class Line:
    """What a task wrote.

    Attributes:
        word: begin, end, double or twice.
        at: In seconds since the epoch.
        number: Of the work, as the soak counts it.
        rank: Of the member of a gang; else 0.
        task: Mesos' id of it.
        cards: UUIDs.
        host: Address of the host that it ran on; "": it has none of its own.
    """

    word: str
    at: float
    number: int
    rank: int
    task: str
    cards: tuple[str, ...]
    host: str = ""


def by_number(lines: Iterable[Line]) -> Mapping[int, list[Line]]:
    """The lines of each piece of work; none of one that wrote nothing."""
    of_each: Mapping[int, list[Line]] = defaultdict(list)
    for line in lines:
        of_each[line.number].append(line)
    return of_each


def read_lines(text: str) -> list[Line]:
    """The lines of a text, each with all its fields."""
    said = [json.loads(line) for line in text.splitlines()]
    return [Line(**{**each, "cards": tuple(each["cards"])}) for each in said]


class Evidence:
    """A directory that tasks of any user write to."""

    def __init__(self, directory: Path) -> None:
        """Nothing is made yet."""
        self.directory = directory
        self._said, self._read = directory / "said", 0
        self._lines: list[Line] = []
        self.ends: dict[int, float] = {}  # of each work, when the latest of its tasks wrote that it was done

    def make(self, cards: Iterable[str]) -> None:
        """The files, and a slot of each card."""
        for name in ("", "cards", "run"):
            (self.directory / name).mkdir()
            (self.directory / name).chmod(0o777)
        shutil.copy(WORK, self.directory / "work.py")
        (self.directory / "work.py").chmod(0o644)
        slots = [f"cards/{card}.{slot}" for card in cards for slot in range(SLOTS_OF_CARD)]
        for name in ("said", *slots):
            (self.directory / name).touch()
            (self.directory / name).chmod(0o666)

    def command(self, number: int, slots: int, seconds: float, mode: str) -> str:
        """What a task runs."""
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        place = self.directory
        unset = "env -u LD_PRELOAD"  # by this machine's clock, whatever its host's shows
        return f"exec {unset} {python} -IS {place}/work.py {place} {number} {slots} {seconds} {mode}"

    def lines(self) -> list[Line]:
        """All lines so far, in the order in which they were written."""
        with self._said.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        lines = read_lines(whole)
        self._lines += lines
        self.ends.update({line.number: line.at for line in lines if line.word == "end"})
        return self._lines

    def held(self, kind: str) -> dict[str, int]:
        """Names of files below `cards` or `run` that processes hold, each with the pid that the kernel says; nothing is
        tried, for a try would be in the way of tasks."""
        by_inode = _locked()
        held = {}
        for path in (self.directory / kind).iterdir():
            status = path.stat()
            pid = by_inode.get((status.st_dev, status.st_ino))
            if pid is not None:
                held[path.name] = pid
        return held

    def running(self, number: int) -> int:
        """How many processes hold the lock of that work."""
        return sum(name.partition(".")[0] == str(number) for name in self.held("run"))


def _locked() -> dict[tuple[int, int], int]:
    """Device and inode of each file with a lock by flock(2), and the pid of who took it."""
    locked = {}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "FLOCK" in words and "->" not in words:
            pid, place = int(words[4]), words[5].split(":")
            locked[(os.makedev(int(place[0], 16), int(place[1], 16)), int(place[2]))] = pid
    return locked
