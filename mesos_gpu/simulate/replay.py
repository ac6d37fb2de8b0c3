"""Replay of the journal of a real scheduler: the same engine must come to the same decisions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from mesos_gpu import __version__
from mesos_gpu.engine import journal
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import Damaged, NotFound
from mesos_gpu.wire import journal as wire

_MAX_KEYS: Final = 5  # keys of a dict that a difference names at most
_SECRET: Final = ("env",)  # fields of an event whose values are not for a report


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed step."""

    seq: int
    at: float  # seconds since the epoch
    event: str  # its type
    decided: tuple[str, ...]  # its calls as recorded, or why there are none


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference between the recorded and the replayed decisions."""

    seq: int
    at: float | None
    file: str
    what: str  # "decisions"; "saves": equal calls, but other records were saved; "state": between two files
    event: dict[str, Any]
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """Result of a replay."""

    files: int = 0
    events: int = 0
    decisions: int = 0  # recorded calls, without acknowledgements
    refused: int = 0
    first_difference: Difference | None = None
    warnings: list[str] = field(default_factory=list)


def files_of(path: Path) -> list[Path]:
    """Return the files of a journal, oldest first: those in a directory, or a single file.

    Raises:
        NotFound: There is no journal.
    """
    files = sorted(path.glob(wire.PATTERN)) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise NotFound(
            f"there is no journal in {path}",
            remedy="name a file, or the directory that `mesos-gpu scheduler --journal` was given",
        )
    return files


def replay(
    files: list[Path],
    *,
    until: int | None = None,
    told: Callable[[Replayed], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Step all events of the files, each file from the state that it begins with, up to the first difference.

    Args:
        files: Files in the order of `files_of`.
        until: Number of the last step; None for all steps.
        told: Callback for each step.
        progress: Callback with the number of bytes read.

    Raises:
        Damaged: A line other than the last one is not a line of a journal, or a number is out of order.
    """
    run = _Run(until, told, progress)
    for path in files:
        if not run.file(path):
            break
    return run.result


class _Run:
    def __init__(
        self, until: int | None, told: Callable[[Replayed], None], progress: Callable[[int], None]
    ) -> None:
        self.result = Result()
        self._until, self._told, self._progress = until, told, progress
        self._read = 0
        self._state: State | None = None  # after the previous file; None if it is not known
        self._next = 0  # number that the next step must have

    def file(self, path: Path) -> bool:
        """Replay a file; return whether to go on."""
        lines = self._lines(path)
        head_line = next(lines, None)
        if head_line is None:
            return True
        head = wire.decode_head(head_line)
        if self._until is not None and head.seq > self._until:
            return False
        self.result.files += 1
        settings = wire.decode_flat(head.settings, Settings)
        state = self._state_at(path, head)
        if state is None:
            self._warn(f"{path.name} is left out: the state that it begins with was not written to its end")
            self._state = None
            return True
        if not self._begin(path, head, state):
            return False
        exact = head.program == __version__
        for line in lines:
            batch = wire.decode_batch(line)
            self._check_number(path, batch.seq)
            for recorded in batch.steps:
                if self._until is not None and self._next > self._until:
                    return False
                if not self._step(path, state, settings, batch.at, recorded, exact=exact):
                    return False
        self._state = state
        return True

    def _state_at(self, path: Path, head: wire.Head) -> State | None:
        """Return the state that a journal file begins with; None if neither it nor a previous file gives the state.

        Raises:
            Damaged: The state cannot be read, or belongs to another journal file.
        """
        if head.has_state:
            return journal.STATES.decode(head.state)
        beside = path.with_name(wire.state_name(path.name))
        if not beside.exists():
            return self._state if head.follows and head.seq == self._next else None
        document = wire.decode_beside(beside.read_bytes())
        if document.seq != head.seq:
            raise Damaged(
                f"{beside} is the state before step {document.seq}, and {path.name} begins with {head.seq}",
                remedy="put the file's own state there, or leave the file out",
            )
        return journal.STATES.decode(document.state)

    def _begin(self, path: Path, head: wire.Head, state: State) -> bool:
        """Compare the state that a file begins with with the state after the previous file; return whether to go on."""
        before, expected = self._state, self._next
        self._state, self._next = None, head.seq
        if head.program != __version__:
            self._warn(
                f"{path.name} was written by version {head.program}, this is {__version__}: only calls are compared"
            )
        if before is None:
            return True
        if head.seq != expected:
            self._warn(f"steps {expected} to {head.seq - 1} are missing")
        if head.seq != expected or not head.follows:
            return True
        recorded, replayed = _beyond(state, before), _beyond(before, state)
        if recorded and head.program == __version__:
            self.result.first_difference = Difference(
                head.seq, None, path.name, "state", {}, recorded, replayed
            )
        return self.result.first_difference is None

    def _step(
        self, path: Path, state: State, settings: Settings, at: float, recorded: wire.Step, *, exact: bool
    ) -> bool:
        event = journal.EVENTS.decode(recorded.event)
        outcome: journal.Outcome
        try:
            outcome = step(state, event, at, settings)
        except Exception as error:  # noqa: BLE001 - an error that was recorded must occur again
            outcome = error
        again = journal.recorded(event, outcome)
        effects = tuple(map(journal.words, outcome)) if isinstance(outcome, list) else ()
        then, now, seq = _said(recorded), _said(again), self._next
        self._count(recorded)
        self._told(Replayed(seq, at, type(event).__name__, then))
        self._next += 1
        if then == now and not (exact and recorded.digest != again.digest):
            return not again.failed
        what = "saves" if then == now else "decisions"
        difference = (_shown(recorded.event), then, effects if then == now else now)
        self.result.first_difference = Difference(seq, at, path.name, what, *difference)
        return False

    def _count(self, recorded: wire.Step) -> None:
        self.result.events += 1
        self.result.decisions += len(recorded.decided)
        self.result.refused += bool(recorded.refused)

    def _lines(self, path: Path) -> Iterator[bytes]:
        """Yield the complete lines; a scheduler that was killed leaves an incomplete last line."""
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    self._warn(f"the last line of {path.name} is torn, and is left out: {len(line)} bytes")
                    return
                yield line
                self._read += len(line)
                self._progress(self._read)

    def _check_number(self, path: Path, seq: int) -> None:
        if seq != self._next:
            raise Damaged(
                f"{path}: step {seq} stands where {self._next} should",
                remedy="restore the file, or replay the other files only",
            )

    def _warn(self, words: str) -> None:
        if words not in self.result.warnings:
            self.result.warnings.append(words)


def _said(step: wire.Step) -> tuple[str, ...]:
    """Return the outcome of a step in words."""
    if step.refused:
        return (f"refused: {step.refused}",)
    if step.failed:
        return (f"failed: {step.failed}",)
    return tuple(step.decided)


def _beyond(one: State, other: State) -> tuple[str, ...]:
    """Return the fields in which two states differ, with the keys or the value that only `one` has.

    Values of dicts are left out, because jobs may contain secrets.
    """
    differences = []
    for name in journal.STATES.names:
        mine, its = journal.STATES.field_of(one, name), journal.STATES.field_of(other, name)
        if isinstance(mine, dict):
            # Compared as lists, because decisions may depend on the order of entries.
            if list(mine.items()) != list(its.items()):
                keys = [str(key) for key, value in mine.items() if key not in its or its[key] != value]
                differences.append(f"{name}: {', '.join(keys[:_MAX_KEYS]) or 'nothing more'}")
        elif mine != its:
            differences.append(f"{name}: {str(mine)[:200]}")
    return tuple(differences)


def _shown(raw: msgspec.Raw) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    return {name: _hidden(body) for name, body in fields.items()}


def _hidden(value: Any) -> Any:
    """Return a value with the values of environment variables masked, as they may be secrets."""
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: dict.fromkeys(each, "…") if name in _SECRET and isinstance(each, dict) else _hidden(each)
        for name, each in value.items()
    }
