"""Watch of a task's MPS daemon by the task's executor.

If the daemon is dead, hung or in fault, the task ends and is placed again: at the infrastructure's fault, or
at its own if it caused the fault. Each executor watches for its own task, and closes the card for further
shares.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.devices import cgroups
from isolator.gpus.ledger import Ledger
from isolator.gpus.share_claims import CLOSED, CardTrace
from isolator.host import processes
from isolator.runs.run import Ended
from isolator.shares.by_mps import domain_of, limits_on
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.daemon import Domain, Host
from isolator.shares.mps.life import Action, Event, LogReading, State, culprit, read_log, read_xid, step
from isolator.shares.tenancy import Tenancy
from mesos_gpu.adapters.mps_control import Absent, Busy, Limits, SettingsRejected, Silent
from mesos_gpu.errors import Unavailable

LOOK_S: Final = 5.0
PIDS_S: Final = 1.0
MAX_LOG: Final = 1 << 20  # bytes; each question to the daemon writes five lines to its log
_MINE, _OTHERS = "mine", "others"
FULL: Final = "its MPS server has as many clients as it takes"  # a reason to close a card


@dataclass(frozen=True, slots=True)
class Sight:
    """Observation of the daemon at one look.

    Attributes:
        event: Event for the table.
        why: Fault in words, or "".
    """

    event: Event
    why: str = ""


class Watch:
    """Watch of the MPS daemon for one task, which has joined it.

    `look`, `explained` and `drain` may be called without the thread.

    Args:
        host: MPS settings of this host.
        domain: Card and user of the task.
        ledger: The ledger of this host.
        own: Function that returns the current processes of the task.
        limits: Function that returns the limits of all tasks of the domain by the ledger; a task that is
            alone there is the culprit of any fault.
        evict: Function that ends the task.
        say: Function that logs a line.
        xids: Function that returns the pids in XID messages since the boot; the kernel's log by default.
        most_clients: Number of clients that the server takes; 0 for any number.
    """

    def __init__(
        self,
        host: Host,
        domain: Domain,
        ledger: Ledger,
        *,
        own: Callable[[], Collection[int]],
        limits: Callable[[], dict[str, Limits]],
        evict: Callable[[], None],
        say: Callable[[str], None],
        xids: Callable[[], Iterable[int]] | None = None,
        most_clients: int = 0,
    ) -> None:
        self._host, self._domain, self._ledger = host, domain, ledger
        self._mps = host.mps(domain)
        self._own, self._limits, self._evict, self._say = own, limits, evict, say
        self._xids = xids or kernel_xids
        self._most_clients, self._clients = most_clients, 0
        self._before = frozenset(self._xids())
        self._logs = host.logs(domain)
        self._size = {path: _size_of(path) for path in self._logs}
        self._begin = dict(self._size)
        self._seen: dict[int, str] = {}
        self._stop = threading.Event()
        self.state, self.why = State.ACTIVE, ""
        self.evicted = self._told_to_end = False

    def start(self) -> None:
        """Start the thread that looks until `stop`."""
        threading.Thread(target=self._run, name="mps", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        due = time.monotonic() + LOOK_S
        while not self._stop.wait(PIDS_S):
            try:
                self._note_processes()
                if time.monotonic() >= due:
                    self.look()
                    due = time.monotonic() + LOOK_S
            except Exception as error:  # noqa: BLE001 - without the watch the task would stay with a dead daemon
                self._say(f"the MPS daemon of {self._domain.gpu} cannot be watched: {error!r}")

    def look(self) -> tuple[Action, ...]:
        """Look once, and carry out what the table (`mps.life`) says; return these actions."""
        self._note_processes()
        self._follow_log()
        sight = self._sight()
        # If stopped meanwhile, the claim may be released, and the card must not be closed for its next user.
        if sight is None or self._stop.is_set():
            return ()
        move = step(self.state, sight.event)
        if move.to is not self.state:
            self._say(f"the MPS daemon of {self._domain.gpu} is {move.to.value}: {sight.why or 'it answers'}")
        self.state, self.why = move.to, sight.why
        if self.evicted and not self._told_to_end:
            self._end_task()
        for action in move.does:
            self._do(action, sight)
        if sight.event is Event.ANSWERS:
            self._see_settings()
            self._see_room()
            self._shorten_log()
        return move.does

    def explained(self, ended: Ended) -> Ended:
        """Return the end of the task with the daemon's part in it; a success stays one unless the task was
        evicted.
        """
        failed = bool(ended.signal or ended.exit_status)
        if not (failed or self.evicted):
            return ended
        reading = self._log()
        if not (self.evicted or reading.met or ((sight := self._sight()) and sight.why)):
            return ended
        culprit_side = culprit(
            self._tenants(), self._seen, frozenset(self._xids()) - self._before, reading.culprits
        )
        if reading.met and culprit_side == _MINE:
            why = f"the task had a fatal fault on {self._domain.gpu}, which ended all tasks of its user there"
            return Ended(ended.exit_status, ended.signal, why, limit=ended.limit)
        why = self.why or "one of its clients had a fatal fault"
        return Ended(why=f"the MPS daemon of {self._domain.gpu} failed: {why}", infrastructure=True)

    def drain(self, grace_s: float) -> None:
        """Let the work of the task's MPS clients end before they are killed, in a thread if there is time.

        Args:
            grace_s: Seconds from SIGTERM to SIGKILL.
        """
        lead_s = min(mps.DRAIN_S, grace_s / 2)
        if not lead_s:
            mps.drain(self._host, self._domain, tuple(self._own()), mps.QUIT_S)
            return

        def late() -> None:
            time.sleep(grace_s - lead_s)
            mps.drain(self._host, self._domain, tuple(self._own()), lead_s)

        threading.Thread(target=late, name="mps-drain", daemon=True).start()

    # --- what is seen

    def _sight(self) -> Sight | None:
        """Return the present observations of the daemon; None if the daemon lives, but is busy with another caller."""
        if mps.daemon_pid(self._host, self._domain) is None:
            return Sight(Event.EXITED, "its process has ended")
        try:
            servers = self._mps.servers()
            clients = {server.pid: self._mps.clients(server.pid) for server in servers}
        except Silent as error:
            return Sight(Event.SILENT, error.what)
        except Absent as error:
            return Sight(Event.ABSENT, error.what)
        except (Busy, SettingsRejected) as error:
            self._say(error.what)
            return None
        self._clients = sum(map(len, clients.values()))
        for pid in (pid for pids in clients.values() for pid in pids):
            self._seen.setdefault(pid, _OTHERS)
        faults = [server.fault for server in servers if server.fault is not None]
        if any(faults) if faults else bool(servers) and self._log().fault:
            if not self._clients:
                return Sight(Event.OVER)
            return Sight(Event.FAULT, f"its server is in fault, and has {self._clients} clients")
        return Sight(Event.ANSWERS)

    def _note_processes(self) -> None:
        self._seen |= dict.fromkeys(self._own(), _MINE)

    def _tenants(self) -> set[str]:
        return {_MINE, _OTHERS} if len(self._limits()) > 1 else {_MINE}

    def _log(self) -> LogReading:
        """Return the faults in the end of the log since the task joined; in the whole log if it was shortened
        meanwhile.
        """
        self._follow_log()
        text = ""
        for path in self._logs:
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                # Read the end of a long log, so that a client that writes many lines hides none that follow.
                last = _size_of(path) - 2 * MAX_LOG
                if last > self._begin[path]:
                    file.seek(last)
                    file.readline(2 * MAX_LOG)  # skip the rest of a line that was cut
                else:
                    file.seek(self._begin[path])
                text += file.read(2 * MAX_LOG).decode(errors="replace")
        return read_log(text)

    def _follow_log(self) -> None:
        """Note logs that an executor has shortened: between two looks none grows to its old length again."""
        for path in self._logs:
            size = _size_of(path)
            if size < self._size[path]:
                self._begin[path] = 0
            self._size[path] = size

    # --- what is done

    def _do(self, action: Action, sight: Sight) -> None:
        gpu = self._domain.gpu
        if action is Action.CLOSE:
            self._ledger.note(CardTrace(gpu, CLOSED, _why_closed(self.state)))
        elif action is Action.OPEN:
            for state in State:
                self._ledger.forget(CardTrace(gpu, CLOSED, _why_closed(state)))
        elif action is Action.EVICT and not self.evicted:
            self.evicted = True
            self._say(f"the task ends, as the MPS daemon of {gpu} is {self.state.value}: {sight.why}")
            self._end_task()
        # KILL needs no action here: the next share that joins ends what is left first.

    def _end_task(self) -> None:
        """End the task; repeated at each look until it succeeds, as an agent that ends an image may be away."""
        self._evict()
        self._told_to_end = True

    def _see_settings(self) -> None:
        """Set the limits again if a client has changed them, unless another process works on the card."""
        with contextlib.suppress(Unavailable), self._ledger.turn([self._domain.gpu], timeout_s=0.0):
            limits = self._limits()
            if not limits:
                return
            most = mps.most_of(tuple(limits.values()))
            try:
                self._mps.holds(limits, most)
            except SettingsRejected as error:
                self._say(error.what)
                self._mps.open(self._domain.gpu, self._domain.uid, most)
                for task, own in limits.items():
                    self._mps.admit(task, own)

    def _see_room(self) -> None:
        """Close the card while its tasks use all clients of its server; each was counted with one client, but
        may have more.
        """
        full, hung = (CardTrace(self._domain.gpu, CLOSED, why) for why in (FULL, _why_closed(State.HUNG)))
        rows = self._ledger.cards(full.gpu)
        if hung in rows:  # the daemon answers: the executor that closed the card as hung may have died since
            self._ledger.forget(hung)
        is_full, is_noted = 0 < self._most_clients <= self._clients, full in rows
        if is_full and not is_noted:
            self._say(f"{full.gpu} takes no more shares: {FULL}, {self._clients}")
            self._ledger.note(full)
        elif is_noted and not is_full:
            self._ledger.forget(full)

    def _shorten_log(self) -> None:
        """Cut off the logs; this is safe, as the daemon appends to them."""
        for path in self._logs:
            if _size_of(path) > MAX_LOG:
                os.truncate(path, 0)
        self._follow_log()


def watch_of(
    tenancy: Tenancy, ledger: Ledger, evict: Callable[[], None], say: Callable[[str], None]
) -> Watch:
    """Return the watch of a task that has joined a daemon.

    Args:
        tenancy: The task, with the cgroups that its processes join.
        ledger: The ledger of this host.
        evict: Function that ends the task.
        say: Function that logs a line.

    Raises:
        MesosGpuError: The host has changed since the task joined.
    """
    (gpu,) = tenancy.gpus

    def own() -> set[int]:
        below = [pid for path in tenancy.cgroups for pid in cgroups.pids_below(Path(path))]
        return {*processes.descendants(os.getpid()), *below}

    return Watch(
        mps.host_of(tenancy.own),
        domain_of(tenancy, gpu),
        ledger,
        own=own,
        limits=lambda: limits_on(ledger, gpu, tenancy.own),
        evict=evict,
        say=say,
        most_clients=gpu.sharing.mps_clients if gpu.sharing else 0,
    )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _why_closed(state: State) -> str:
    """Return the reason that the ledger has for a card that is closed to new tasks."""
    return f"its MPS daemon is {state.value}"


def kernel_xids() -> frozenset[int]:
    """Return the pids in XID messages of the kernel's log; empty if it cannot be read.

    Source: the kernel's Documentation/ABI/testing/dev-kmsg: one record per read, EAGAIN after the last, EPIPE
    where one was overwritten.
    """
    pids: set[int] = set()
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return frozenset()
    try:
        while True:
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:
                continue
            if xid := read_xid(record.decode(errors="replace")):
                pids.add(xid.pid)
    except OSError:  # EAGAIN after the last record
        return frozenset(pids)
    finally:
        os.close(fd)
