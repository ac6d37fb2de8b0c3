"""Use of simulated cards, described by their inventory file: by amounts, by waves, or by scripts of tasks that idle and
wake.
"""

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.gpu_use import Meters, Span
from mesos_gpu.wire.body import MAX_AMOUNT

_METERS: Final = tuple(field.name for field in fields(Meters))
_OF_USE: Final = ("busy_pct", "process_busy_pct", *_METERS)
_HELD: Final = "held"  # field of a use: values that replace others while a task holds the card
_SCRIPTS: Final = "scripts"  # field of a use: scripts of tasks on the card, by patterns of their ids
_WAVE_S: Final = 180.0  # period of a wave from high to low and back
_MS: Final = 1000
_ALL: Final = 100  # percent
_STEP: Final = (
    '{"for_s": 60} with one of "busy_pct": 95, "burst_ms": 50 and "every_s": 20, or "unknown": true'
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds cards.

    Attributes:
        task: Id of the task.
        gpus: Cards that it holds, whole or in part.
        since_ms: Time since when it holds them, in milliseconds since the epoch.
        pid: Id of one of its processes.
        whole: Whether it holds them exclusively.
    """

    task: str
    gpus: Collection[GpuId]
    since_ms: int = 0
    pid: int = 1
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Step:
    """Activity of a task for a time: bursts, or `busy_pct` of the time; without both the activity is unknown.

    Attributes:
        for_ms: Duration in milliseconds; None for ever.
    """

    for_ms: int | None
    busy_pct: float | None = None
    burst_ms: int = 0
    every_ms: int = 0

    @property
    def known(self) -> bool:
        return self.busy_pct is not None or self.every_ms > 0

    def busy_ms(self, ms: int) -> int:
        """Return the busy time in the first `ms` milliseconds."""
        if self.every_ms:
            return ms // self.every_ms * self.burst_ms + min(ms % self.every_ms, self.burst_ms)
        return int(ms * (self.busy_pct or 0) // _ALL)


@dataclass(frozen=True, slots=True)
class Script:
    """Activity of a task from when it takes its cards: successive steps, the last of which continues."""

    steps: tuple[_Step, ...]

    def so_far(self, ms: int) -> Span:
        """Return known and busy time of the first `ms` milliseconds."""
        seen = busy = 0
        for index, step in enumerate(self.steps):
            last = index == len(self.steps) - 1 or step.for_ms is None
            part = ms if last or step.for_ms is None else min(ms, step.for_ms)
            seen, busy = seen + part * step.known, busy + step.busy_ms(part)
            ms -= part
            if last or ms <= 0:
                break
        return Span(seen, busy)

    def between(self, begins_ms: int, ends_ms: int) -> Span:
        """Return known and busy time of an interval; successive intervals add up exactly to the millisecond."""
        before, after = self.so_far(begins_ms), self.so_far(ends_ms)
        return Span(after.seen_ms - before.seen_ms, after.busy_ms - before.busy_ms)


def script_of(value: Any, where: str) -> Script:
    """Return the script that a JSON list of steps describes.

    Args:
        value: List of steps.
        where: Place of the list in the file, for messages.

    Raises:
        ValueError: A step is invalid; the message names it and the right form.
    """
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where}: it must be a list of steps, as [{_STEP}]")
    return Script(tuple(_step(step, f"{where}[{index}]") for index, step in enumerate(value)))


def _step(value: Any, where: str) -> _Step:
    """Return the step that a JSON object describes."""
    kinds = [{"busy_pct"}, {"burst_ms", "every_s"}, {"unknown"}]
    if not isinstance(value, dict) or value.keys() - {"for_s"} not in kinds:
        raise ValueError(f"{where}: it must be an object like {_STEP}, got {value!r}")
    for_ms = _ms(value, "for_s", where) if "for_s" in value else None
    if "unknown" in value:
        if value["unknown"] is not True:
            raise ValueError(f"{where}.unknown must be true, got {value['unknown']!r}")
        return _Step(for_ms)
    if "busy_pct" in value:
        pct = value["busy_pct"]
        if not _is_number(pct) or not 0 <= pct <= _ALL:
            raise ValueError(f"{where}.busy_pct must be percent from 0 to 100, got {pct!r}")
        return _Step(for_ms, busy_pct=pct)
    burst_ms, every_ms = value["burst_ms"], _ms(value, "every_s", where)
    if not isinstance(burst_ms, int) or isinstance(burst_ms, bool) or not 0 < burst_ms <= every_ms:
        raise ValueError(
            f"{where}.burst_ms must be whole milliseconds, no more than every_s, got {burst_ms!r}"
        )
    return _Step(for_ms, burst_ms=burst_ms, every_ms=every_ms)


def _ms(value: Mapping[str, Any], name: str, where: str) -> int:
    seconds: int | float = value[name]
    if not _is_number(seconds) or not 0.001 <= seconds < MAX_AMOUNT:
        raise ValueError(f"{where}.{name} must be seconds, a millisecond or more, got {seconds!r}")
    return round(seconds * _MS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def asks_for_holders(use: Any) -> bool:
    """Return whether a use depends on tasks that hold the card."""
    return isinstance(use, dict) and bool(use.keys() & {_HELD, _SCRIPTS})


def reading_of(
    use: Mapping[str, Any], gpu_id: str, holders: Collection[Holder], last_ms: int | None, now_ms: int
) -> dict[str, Any]:
    """Return the fields of a reading for a card's use.

    Args:
        use: Use of the card in the inventory file.
        gpu_id: Id of the card.
        holders: Tasks that hold any cards.
        last_ms: Time of the previous survey, in milliseconds since the epoch; None if there was none, or the clock was
            set back since then.
        now_ms: Time of this survey.

    Raises:
        ValueError: A field is invalid; the message names it.
    """
    on = [holder for holder in holders if gpu_id in holder.gpus]
    current_use = _current_use(use, gpu_id, bool(on), now_ms / _MS)
    reading = _reading_without_scripts(current_use, None if last_ms is None else now_ms - last_ms)
    scripts = _scripts(use.get(_SCRIPTS, {}))
    acts = [(holder, script) for holder in on if (script := _script_for(holder, scripts)) is not None]
    return reading | _scripted_activity(acts, len(on), last_ms, now_ms) if acts else reading


def _scripts(value: Any) -> list[tuple[str, Script]]:
    if not isinstance(value, dict):
        raise ValueError(f"use.{_SCRIPTS}: it must be an object of jobs' ids with lists of steps")
    return [(name, script_of(steps, f"use.{_SCRIPTS}.{name}")) for name, steps in value.items()]


def _script_for(holder: Holder, scripts: Sequence[tuple[str, Script]]) -> Script | None:
    """Return the first script whose pattern matches the job's id, which is the task id without the launch number."""
    job = holder.task.rpartition(".")[0]
    return next((script for name, script in scripts if fnmatchcase(job, name)), None)


def _scripted_activity(
    acts: Sequence[tuple[Holder, Script]], holders: int, last_ms: int | None, now_ms: int
) -> dict[str, Any]:
    """Return the activity of tasks on a card between two surveys, in the fields of a reading.

    If the activity of one task is unknown, or no script describes it, that of the others on the card is unknown too:
    the driver's samples are per card.
    """
    if last_ms is None:
        return {"span": None, "process_busy_ms": None}
    parts = [(holder, _activity_between(holder, script, last_ms, now_ms)) for holder, script in acts]
    seen_ms = min(part.seen_ms for _, part in parts) if len(acts) == holders else 0
    if not seen_ms:
        return {"span": None, "process_busy_ms": None}
    span = Span(seen_ms, min(sum(part.busy_ms for _, part in parts), seen_ms))
    if all(holder.whole for holder, _ in acts):
        return {"span": span, "process_busy_ms": None}
    pids = tuple(holder.pid for holder, _ in acts)
    busy = tuple((holder.pid, min(part.busy_ms, seen_ms)) for holder, part in parts)
    return {"span": span, "pids": pids, "process_busy_ms": busy}


def _activity_between(holder: Holder, script: Script, last_ms: int, now_ms: int) -> Span:
    """Return a task's activity in an interval; before the task took the card, the card was idle, which is known."""
    begins_ms, ends_ms = max(last_ms - holder.since_ms, 0), max(now_ms - holder.since_ms, 0)
    part = script.between(begins_ms, ends_ms)
    return Span(part.seen_ms + (now_ms - last_ms) - (ends_ms - begins_ms), part.busy_ms)


def _current_use(use: Mapping[str, Any], gpu_id: str, is_held: bool, now: float) -> dict[str, Any]:
    """Return the amounts of a use at a time, with values from waves and, while the card is held, from `held`.

    Raises:
        ValueError: `held` is no object, or has an unknown field.
    """
    while_held = use.get(_HELD, {})
    if not isinstance(while_held, dict) or (strange := while_held.keys() - {*_OF_USE}):
        what = f"unknown field {min(strange)!r}" if isinstance(while_held, dict) else "it must be an object"
        raise ValueError(f"use.held: {what}; allowed are {', '.join(_OF_USE)}")
    rest = {name: amount for name, amount in use.items() if name not in (_HELD, _SCRIPTS)}
    turn = now / _WAVE_S + zlib.crc32(gpu_id.encode()) / 2**32
    part = (1 + math.sin(2 * math.pi * turn)) / 2
    return {
        name: _interpolate(amount, part) for name, amount in (rest | (while_held if is_held else {})).items()
    }


def _interpolate(amount: Any, part: float) -> Any:
    """Return the integer at a fraction of the way between the values of a pair; anything else unchanged."""
    if isinstance(amount, list) and len(amount) == 2 and all(type(end) in (int, float) for end in amount):
        return round(amount[0] + (amount[1] - amount[0]) * part)
    return amount


def _reading_without_scripts(use: Mapping[str, Any], elapsed_ms: int | None) -> dict[str, Any]:
    """Return the reading's fields for a use without scripts. `elapsed_ms`: since the last survey; None at the first."""
    if strange := sorted(use.keys() - {*_OF_USE}):
        known_fields = ", ".join((_HELD, _SCRIPTS, *_OF_USE))
        raise ValueError(f"use: unknown field {strange[0]!r}; allowed are {known_fields}")
    meters = {name: use[name] for name in _METERS if use.get(name) is not None}
    for name, amount in meters.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount < MAX_AMOUNT:
            raise ValueError(f"use.{name} must be a whole number from 0, got {amount!r}")
    busy_pct = use.get("busy_pct")
    part_ms = None if busy_pct is None else _busy_time_ms("busy_pct", busy_pct, elapsed_ms or 0)
    span = None if part_ms is None or elapsed_ms is None else Span(elapsed_ms, part_ms)
    processes = use.get("process_busy_pct")
    if processes is not None and not isinstance(processes, dict):
        raise ValueError(f"use.process_busy_pct must be an object of pids with percent, got {processes!r}")
    busy_ms = {
        int(pid): _busy_time_ms("process_busy_pct", pct, elapsed_ms or 0)
        for pid, pct in (processes or {}).items()
    }
    return {
        "meters": Meters(**meters),
        "span": span,
        "process_busy_ms": tuple(busy_ms.items()) if span and processes is not None else None,
    }


def _busy_time_ms(name: str, pct: Any, elapsed_ms: int) -> int:
    if isinstance(pct, bool) or not isinstance(pct, int | float) or not 0 <= pct <= _ALL:
        raise ValueError(f"use.{name} must be percent from 0 to 100, got {pct!r}")
    return round(elapsed_ms * pct / _ALL)


def lifelike(gpu: Gpu) -> dict[str, Any]:
    """Return a use for the inventory file: the card is idle until a task holds it, and then computes."""
    used_mib = gpu.memory_mib * 3 // 4
    return {
        "busy_pct": 0, "gpu_pct": 0, "memory_pct": 0, "memory_used_mib": 0, "memory_free_mib": gpu.memory_mib,
        "power_mw": 62_000, "power_limit_mw": 400_000, "temperature_c": 34, "sm_clock_mhz": 210,
        "memory_clock_mhz": 1215,
        _HELD: {
            "busy_pct": [55, 97], "gpu_pct": [55, 97], "memory_pct": [20, 60], "memory_used_mib": used_mib,
            "memory_free_mib": gpu.memory_mib - used_mib, "power_mw": [210_000, 372_000], "temperature_c": [58, 71],
            "sm_clock_mhz": 1410,
        },
    }  # fmt: skip


def with_scripts(scripts: Mapping[str, Any]) -> Callable[[Gpu], dict[str, Any]]:
    """Return a function that gives each card a use like `lifelike`, with scripts for jobs, by patterns of their ids.

    Raises:
        ValueError: A script is invalid.
    """
    _scripts(scripts)
    return lambda gpu: lifelike(gpu) | ({_SCRIPTS: dict(scripts)} if scripts else {})
