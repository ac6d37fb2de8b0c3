"""What goes on beside a soak: what has ended is started again, and who leads is watched."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local.processes import Process, get_json, get_json_by_socket
from mesos_gpu.local.stack import SchedulerProcess, Stack

_TEND_S: Final = 0.25
_ANSWER_S: Final = 1.0


class _Looking(threading.Thread):
    """Looks again and again, until it is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_TEND_S):
            self.look()

    def look(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join(60)


class _Keeper(_Looking):
    """Starts one process when it has ended; what cannot be started is tried again at the next look."""

    def __init__(self, process: Process | SchedulerProcess) -> None:
        super().__init__(f"tending {process.url}")
        self.lock, self.is_off = threading.Lock(), False
        self._process = process

    def look(self) -> None:
        with self.lock:
            if not self.is_off and not self._process.running:
                with contextlib.suppress(MesosGpuError, OSError):
                    self._process.start()


class Tending:
    """Starts what has ended, as systemd would: each on its own, for one may wait for its port."""

    def __init__(self, processes: Callable[[], Sequence[Process | SchedulerProcess]]) -> None:
        """Nothing is started yet. `processes`: that must run."""
        self._processes = processes
        self._keepers: dict[str, _Keeper] = {}

    def start(self) -> None:
        """Begin to look after them."""
        self._keepers = {each.url: _Keeper(each) for each in self._processes()}
        for keeper in self._keepers.values():
            keeper.start()

    def stop(self) -> None:
        """Look after none."""
        for keeper in self._keepers.values():
            keeper.stop()

    @contextlib.contextmanager
    def without(self, process: Process | SchedulerProcess) -> Iterator[None]:
        """This one is left alone meanwhile."""
        keeper = self._keepers[process.url]
        with keeper.lock:
            keeper.is_off = True
        try:
            yield
        finally:
            with keeper.lock:
                keeper.is_off = False


class Watching(_Looking):
    """Who leads, and how often that was another than before."""

    def __init__(self, stack: Stack) -> None:
        """Nobody leads yet."""
        super().__init__("watching")
        self._stack = stack
        self.master = self.scheduler = ""  # URLs
        self.switches = {"masters": 0, "schedulers": 0}

    def look(self) -> None:
        """Ask all of them; while none leads, the last one that did counts."""
        leader = self._stack.cluster.leader()
        if leader:
            self.switches["masters"] += self.master not in ("", leader.url)
            self.master = leader.url
        schedulers = self._stack.schedulers
        first = next((each for each in schedulers if len(schedulers) == 1 or _leads(each)), None)
        if first:
            self.switches["schedulers"] += self.scheduler not in ("", first.url)
            self.scheduler = first.url


def _leads(scheduler: SchedulerProcess) -> bool:
    """Whether it says so; no answer in time: it does not."""
    try:
        kind, _, place = scheduler.reach.partition(":")
        if kind == "unix":
            said = get_json_by_socket(Path(place), "/v1/leader", _ANSWER_S)
        else:
            said = get_json("127.0.0.1", scheduler.port, "/v1/leader", _ANSWER_S)
    except (OSError, http.client.HTTPException):
        return False
    return bool(said["leads"])
