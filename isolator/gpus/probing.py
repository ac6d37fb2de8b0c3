"""GPU probe that runs NVML in a child process: a driver that hangs costs one card, and never the monitor.

The child reports which card it is about to touch. If it does not answer in time, that card is at fault: the
child is killed (or left, if the kernel cannot kill it), a new one continues without the card, and the card is
tried again later, in a child of its own. Lines of JSON both ways.
"""

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from isolator import program
from mesos_gpu.adapters.files import log_lines
from mesos_gpu.adapters.nvml.health import Events
from mesos_gpu.adapters.nvml.session import Nvml, load
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.policy.queueing.backoff import delay_s
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos.health import reading_from_json, reading_to_json

DEADLINE_S: Final = 5.0
# multiple of the deadline for opening a session, which takes long without a persistence daemon
OPEN_DEADLINES: Final = 3
START_S: Final = 30.0
HANGS: Final = 4  # most hangs in one survey; after so many the driver as a whole is treated as hung
RECHECK_S: Final = 60.0
RETRY_MOST_S: Final = 3600.0
KILL_S: Final = 1.0
RESET_S: Final = 120.0
_LAST_MINOR: Final = (1 << 20) - 1  # minor number of the first placeholder; they are counted downwards
COMMAND: Final = program.command("probe")
RESET_COMMAND: Final = ("nvidia-smi", "--gpu-reset", "-i")
Line = dict[str, Any] | None
Lines = queue.SimpleQueue[Line]
logger = logging.getLogger(__name__)

# --- the child


def main() -> int:
    """Run the child, `python -m isolator probe`; return the exit code."""
    return serve(load())


def serve(lib: Any) -> int:
    """Answer requests on stdin until it closes.

    Args:
        lib: The pynvml module, or a fake of it; None if not installed.
    """
    log_lines.to_stderr()
    lock = threading.Lock()

    def say(**line: Any) -> None:
        text = json.dumps(line)
        with lock:
            print(text, flush=True)

    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(orders,), daemon=True).start()
    nvml = Nvml(lib, lambda index, uuid: say(at=index, uuid=uuid))
    listening = False
    while True:
        request = orders.get()
        try:
            nvml.open()
            if nvml.is_open and not listening and request["alone"] is None:
                listening = True
                _listen(nvml, lib, request["skip"], say)
            survey = nvml.survey(request["skip"], request["alone"])
        except MesosGpuError as error:
            say(failed=error.what, remedy=error.remedy)
        else:
            say(**{**_plain(survey), "readings": [reading_to_json(r) for r in survey.readings]})


def _plain(survey: Survey) -> dict[str, Any]:
    return {
        "source": survey.source,
        "driver_version": survey.driver_version,
        "cuda_version": survey.cuda_version,
        "note": survey.note,
    }


def _hear(orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Queue the requests from stdin, and exit when it closes.

    It closes when the parent dies, whatever the cause; a call that hangs must not outlive it.
    """
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def _listen(nvml: Nvml, lib: Any, skip: Sequence[int], say: Callable[..., None]) -> None:
    """Report the driver's events from a thread; a driver without events is no fault."""
    try:
        handles = [handle for _, handle, _ in nvml.handles(skip)]
        if not handles:
            return
        events = Events(lib)
        if not events.register(handles):
            return
    except lib.NVMLError as error:
        logger.info("the driver has no events: %s", error)
        return

    def tell() -> None:
        try:
            for uuid, xid in events.wait():
                say(event=uuid, xid=xid)
        except lib.NVMLError as error:
            logger.warning("no more events of the driver: %s", error)

    threading.Thread(target=tell, daemon=True).start()


# --- the parent


class Clock:
    """Time source of a probe for its deadlines, and its waits for lines of a child."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def next_line(self, lines: Lines, timeout_s: float) -> Line:
        """Return the next line of a child; None stands for the end of its output.

        Raises:
            queue.Empty: The time is over.
        """
        return lines.get(timeout=timeout_s)


class _Stopped(Exception):
    """Error: the child did not continue in time, or crashed."""


def start(command: Sequence[str], env: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start a child process that answers requests by lines."""
    return subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


class _Child:
    """Child process that reads NVML, with a thread that reads its output."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._process = start(command, env)
        self._lines: Lines = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._xids: dict[str, list[int]] = {}
        self.told = threading.Event()  # set when an event arrived
        self.index: int | None = None  # index of the card that it reads
        self.names: dict[int, GpuId] = {}  # by index
        self._since, self._started = clock.now(), False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                self._note(text)
        self._lines.put(None)

    def _note(self, text: str) -> None:
        try:
            line = parsed(text)
        except ValueError:
            logger.warning("the probe printed an invalid line: %r", text)
            return
        if "event" not in line:
            self._lines.put(line)
            return
        with self._lock:
            if line["xid"] is not None:
                self._xids.setdefault(line["event"], []).append(line["xid"])
            self.told.set()

    def ask(self, skip: Sequence[int], alone: int | None = None) -> None:
        """Request a survey, whose result `answer` returns.

        Args:
            skip: Indexes of cards to leave out, because they hang.
            alone: Index of the only card to read; -1 to test the driver as a whole, None for all cards.
        """
        assert self._process.stdin is not None
        self.index, self._since = None, self._clock.now()
        with contextlib.suppress(OSError):  # the child has ended, which `answer` reports
            print(json.dumps({"skip": list(skip), "alone": alone}), file=self._process.stdin, flush=True)

    def answer(self, deadline_s: float, *, wait: bool = True) -> Survey | None:
        """Return the survey; None if it is not ready and `wait` is False.

        Raises:
            Unavailable: The driver fails as a whole.
            _Stopped: The child has been busy with one card for too long, or has ended; `index` is the card.
        """
        while True:
            patience_s = self._patience_s(deadline_s)
            left_s = self._since + patience_s - self._clock.now()
            try:
                line = self._clock.next_line(self._lines, max(left_s, 0.0) if wait else 0.0)
            except queue.Empty:
                if not wait and left_s > 0:
                    return None
                raise _Stopped(f"did not answer within {patience_s:g} s") from None
            if line is None:
                raise _Stopped("made the probe crash")
            if "at" in line:
                self.index, self._since, self._started = line["at"], self._clock.now(), True
                if line["uuid"]:
                    self.names[line["at"]] = GpuId(line["uuid"])
            elif "failed" in line:
                raise Unavailable(line["failed"], remedy=line["remedy"])
            else:
                return Survey(**{**line, "readings": tuple(map(reading_from_json, line["readings"]))})

    def _patience_s(self, deadline_s: float) -> float:
        """Return the deadline for the current step; the start of Python is given more time than the driver."""
        if not self._started:
            return START_S
        return deadline_s * (OPEN_DEADLINES if self.index is None else 1)

    def xids(self) -> dict[str, list[int]]:
        """Return the XIDs since the last call, by GPU, and clear them."""
        with self._lock:
            xids, self._xids = self._xids, {}
            self.told.clear()
        return xids

    def ended(self) -> bool:
        """Return whether the child has ended; reap it."""
        return self._process.poll() is not None

    def end(self) -> bool:
        """Kill the child; return False if it is blocked in the kernel and cannot be killed."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_S)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        return self.ended()


@dataclass
class _Hung:
    """State of a card, or of the driver as a whole, that did not answer."""

    why: str
    retry_at: float  # in seconds on the probe's clock
    count: int = 1
    child: _Child | None = None  # child that tries it again, or cannot be killed
    tries: bool = False  # whether the child tries it again

    def again(self, why: str, recheck_s: float, now: float) -> None:
        """Count a failure, and delay the next try with growing intervals, in seconds."""
        self.count, self.why, self.tries = self.count + 1, why, False
        self.retry_at = now + delay_s(self.count, first_s=recheck_s, most_s=RETRY_MOST_S)


class ChildProbe:
    """`GpuProbe` that runs NVML in a child process; not thread-safe.

    Args:
        deadline_s: Deadline for one card, in seconds; opening a session may take three times as long.
        recheck_s: Seconds after which a card or a driver that hung is tried again; doubled after each
            failure.
        command: Command of the child.
        reset_command: Command that resets a card; its UUID is appended.
        libraries: Function that returns a directory of NVML's library that goes before the host's; called at
            each start of a child.
        clock: Time source for all deadlines; by default this host's.
    """

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        recheck_s: float = RECHECK_S,
        command: Sequence[str] = COMMAND,
        reset_command: Sequence[str] = RESET_COMMAND,
        libraries: Callable[[], Path | None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._deadline_s, self._recheck_s = deadline_s, recheck_s
        self._clock = clock or Clock()
        self._command, self._reset_command, self._libraries = command, reset_command, libraries
        self._child: _Child | None = None
        self._hung: dict[int | None, _Hung] = {}  # by index of the card; None for the driver as a whole
        self._names: dict[int, GpuId] = {}  # ids of cards by index, as last seen
        self._xids: dict[str, list[int]] = {}
        self._renew_at: float | None = None
        self._note = ""

    def changed(self) -> bool:
        """Return whether the driver has reported an event since the last survey."""
        return self._child is not None and self._child.told.is_set()

    def survey(self) -> Survey:
        """Read all GPUs; a card that hangs is unreadable, without effect on others.

        Raises:
            Unavailable: The driver fails as a whole, or hangs.
        """
        for index in list(self._hung):
            self._try_again(index)
        if self._renew_at is not None and self._clock.now() >= self._renew_at:
            self._renew_at = None
            self._drop_child()  # an open session does not notice that a card was reset, or is back
        survey = self._read()
        readings = (*survey.readings, *self._unreadable({reading.gpu.id for reading in survey.readings}))
        if self._renew_at is None and any(reading.lost or reading.unreadable for reading in readings):
            self._renew_at = self._clock.now() + self._recheck_s
        self._collect_xids()
        xids, self._xids = self._xids, {}  # XIDs of unknown cards are dropped
        if survey.note != self._note:
            self._note = survey.note
            logger.info("%s", survey.note or "NVML is there")
        return replace(
            survey,
            readings=tuple(
                replace(reading, xids=tuple(xids.get(reading.gpu.id, ()))) for reading in readings
            ),
        )

    def reset(self, gpu_id: GpuId) -> str:
        """Reset a card by NVIDIA's tool, after ending the child's session, which would block that; return the
        error, or "".
        """
        self._drop_child()
        for index, hung in self._hung.items():
            if index is not None and self._names.get(index) == gpu_id and not _let_go(hung):
                return "a process of the probe hangs in the driver at this card: reboot the host"
        try:
            tool = subprocess.Popen(
                [*self._reset_command, gpu_id],
                env=self._env(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            return f"{self._reset_command[0]} cannot be run: {error.strerror}"
        try:
            output, _ = tool.communicate(timeout=RESET_S)
        except subprocess.TimeoutExpired:
            tool.kill()  # without waiting, as it may be blocked in the kernel
            return f"{self._reset_command[0]} did not end within {RESET_S:g} s"
        for hung in self._hung.values():
            hung.retry_at = 0.0
        return "" if tool.returncode == 0 else output.strip() or f"exit code {tool.returncode}"

    def close(self) -> None:
        """End all children."""
        self._drop_child()
        for hung in self._hung.values():
            _let_go(hung)

    def _read(self) -> Survey:
        """Read all cards that do not hang; start a new child for each card that hangs on the way."""
        for _ in range(HANGS):
            if None in self._hung:
                raise _silent(self._hung[None].why)
            if self._child is None or self._child.ended():
                self._drop_child()
                self._child = _Child(self._command, self._env(), self._clock)
            child = self._child
            child.ask([index for index in self._hung if index is not None])
            try:
                survey = child.answer(self._deadline_s)
            except _Stopped as error:
                self._names |= child.names
                self._stopped(child, str(error))
                continue
            assert survey is not None
            if not self._renumbered(child.names):
                self._names |= child.names
                return survey
        raise _silent(self._hung[next(reversed(self._hung))].why)

    def _env(self) -> dict[str, str]:
        first = self._libraries()
        paths = [str(first)] if first else []
        paths += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
        return {**os.environ, **({"LD_LIBRARY_PATH": ":".join(paths)} if paths else {})}

    def _renumbered(self, names: Mapping[int, GpuId]) -> bool:
        """Return whether a skipped card has another index now; if so, cards that hang are forgotten and tried
        again.
        """
        moved = [i for i in self._hung if i is not None and self._names.get(i) in names.values()]
        for index in moved:
            _let_go(self._hung.pop(index))
        return bool(moved)

    def _stopped(self, child: _Child, why: str) -> None:
        """Note the card, or the driver, at which a child hung or crashed."""
        self._collect_xids()
        self._child = None
        index = child.index
        name = "the driver" if index is None else self._names.get(index) or f"GPU {index} of this host"
        logger.error("%s %s: it is not read for %g s", name, why, self._recheck_s)
        hung = self._hung.setdefault(index, _Hung(why, self._clock.now() + self._recheck_s))
        hung.child, hung.tries = (None if child.end() else child), False

    def _try_again(self, index: int | None) -> None:
        """Retry a card alone, in a child of its own that is not waited for; not while an old child cannot be
        killed.
        """
        hung = self._hung[index]
        if hung.child is None:
            if self._clock.now() < hung.retry_at:
                return
            hung.child, hung.tries = _Child(self._command, self._env(), self._clock), True
            hung.child.ask([], alone=-1 if index is None else index)
        if not hung.tries:
            hung.child = None if hung.child.ended() else hung.child
            return
        try:
            if hung.child.answer(self._deadline_s, wait=False) is None:
                return
        except (_Stopped, Unavailable) as error:
            why = error.what if isinstance(error, Unavailable) else str(error)
            hung.again(why, self._recheck_s, self._clock.now())
            hung.child = None if hung.child.end() else hung.child
        else:
            hung.child.end()
            del self._hung[index]
            self._renew_at = 0.0
            logger.info("%s answers again", "the driver" if index is None else self._names.get(index, index))

    def _unreadable(self, present: set[GpuId]) -> list[Reading]:
        """Return readings for the skipped cards, with placeholders as facts."""
        readings = []
        for index, hung in self._hung.items():
            if index is None:
                continue
            uuid = self._names.get(index)
            if uuid is None or uuid in present:
                continue
            gpu = Gpu(
                id=uuid, model="unknown", memory_mib=1, minor=_LAST_MINOR - index, pci_bus_id="", index=index
            )
            readings.append(Reading(gpu, unreadable=f"it {hung.why}"))
        return readings

    def _collect_xids(self) -> None:
        if self._child is not None:
            for uuid, xids in self._child.xids().items():
                self._xids.setdefault(uuid, []).extend(xids)

    def _drop_child(self) -> None:
        child = self._child
        if child is not None:
            self._collect_xids()
            self._child = None
            if not child.end():
                logger.error(
                    "the probe process cannot be killed (it hangs in the driver); a new one is started"
                )


def _let_go(hung: _Hung) -> bool:
    """End the child at a card; return whether no process of ours is at the card any more."""
    if hung.child is None or hung.child.end():
        hung.child, hung.tries = None, False
        return True
    return False


def _silent(why: str) -> Unavailable:
    return Unavailable(
        f"NVML {why}", remedy="see dmesg of this host; the card may need a reset, or the host a reboot"
    )
