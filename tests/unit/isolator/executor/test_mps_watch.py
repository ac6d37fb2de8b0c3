"""An executor beside an MPS daemon that fails: what it does for its task, and whose fault it says it was."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from isolator.executor import mps_watch
from isolator.executor.mps_watch import Watch
from isolator.gpus.ledger import Ledger
from isolator.gpus.share_claims import CLOSED, CardTrace
from isolator.runs.run import Ended
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.daemon import Domain, Host
from isolator.shares.mps.life import Action, State
from mesos_gpu.adapters.mps2 import Mps2
from mesos_gpu.adapters.mps3 import Mps3
from mesos_gpu.adapters.mps_control import Busy, Limits, Mps
from mesos_gpu.adapters.proc import boot_id, start_ticks
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from tests.conftest import wait_until
from tests.doubles.mps import fake_mps
from tests.mps_hosts import Near, NearControl

GPU = GpuId("GPU-00112233-4455-6677-8899-aabbccddeeff")
MINE, OTHER, SERVER = 4711, 4712, 900
QUARTER = Limits(25, 20480)
CRASHED = Ended(exit_status=1)


@dataclass
class Beside:
    """A fake daemon, and the executor of a task that is its client."""

    host: Host
    domain: Domain
    ledger: Ledger
    daemon: subprocess.Popen[bytes]
    limits: dict[str, Limits] = field(default_factory=lambda: {"t1": QUARTER, "t2": QUARTER})
    xids: set[int] = field(default_factory=set)
    evictions: int = 0
    said: list[str] = field(default_factory=list)

    def watch(self) -> Watch:
        """Begin to watch, without the thread."""

        def evict() -> None:
            self.evictions += 1

        return Watch(
            self.host, self.domain, self.ledger, own=lambda: {MINE}, limits=lambda: self.limits, evict=evict,
            say=self.said.append, xids=lambda: set(self.xids), most_clients=3,
        )  # fmt: skip

    def play(
        self, server: str = "ACTIVE", clients: tuple[int, ...] = (MINE, OTHER), *, old: bool = False
    ) -> None:
        """Have the daemon see a server and its clients."""
        fake_mps.play(
            str(self.host.pipes(self.domain)), servers={str(SERVER): server}, clients=[[SERVER, c] for c in clients],
            old=old,
        )  # fmt: skip

    def log(self, *lines: str) -> None:
        """Write to the log that the server writes to."""
        path = self.host.logs(self.domain)[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            file.write("".join(f"[2026-11-22 06:58:01.100 Other {SERVER}] {line}\n" for line in lines))

    def fault(self, pid: int) -> None:
        """Have a client meet a fatal fault."""
        self.log(*(words.format(pid=pid) for words in fake_mps.WORDS_OF_FAULT))

    def closed(self) -> list[str]:
        """Why the ledger says that the card takes no more shares."""
        return [row.what for row in self.ledger.cards(GPU) if row.kind == CLOSED]

    def end(self) -> None:
        """Kill the daemon."""
        self.daemon.kill()
        self.daemon.wait()
        if isinstance(self.host, NearHost) and self.host.near is not None:
            self.host.near.end()


@dataclass(frozen=True, slots=True)
class NearHost(Host):
    """A host whose daemon is asked in the process of the test."""

    near: Near | None = None

    def mps(self, domain: Domain) -> Mps:
        """Return the domain's daemon."""
        control = NearControl(Path("/none"), self.pipes(domain), near=self.near)
        return Mps3(control) if domain.protocol == 3 else Mps2(control)


def near_host(root: Path, domain: Domain) -> tuple[Host, subprocess.Popen[bytes]]:
    """Start a fake daemon in this process; another process stands for it where it is looked for by its pid."""
    near = Near(root / domain.key, domain.protocol)
    near.start(str(QUARTER.percent))
    return NearHost(Path("/none"), root=root, near=near), subprocess.Popen(["sleep", "3600"])


def far_host(root: Path, domain: Domain, directory: Path) -> tuple[Host, subprocess.Popen[bytes]]:
    """Start a fake daemon as a process."""
    host = Host(Path(fake_mps.program(str(directory), domain.protocol)), root=root)
    daemon_of = host.mps(domain)
    arguments, more = daemon_of.daemon(QUARTER)
    with open(host.beside(domain, "log"), "ab") as log:
        command, env = (
            [str(daemon_of.control.program), *arguments],
            {**daemon_of.control.environment(), **more},
        )
        daemon = subprocess.Popen(command, env=env, stdout=log)
    wait_until("the daemon listens", (host.pipes(domain) / "control").exists)
    return host, daemon


@contextmanager
def beside(kind: str, directory: Path) -> Iterator[Beside]:
    """Give a fake daemon, "near" or "far", of a protocol."""
    root = Path(f"/tmp/mgw-{os.getpid()}")  # sockets need short paths
    domain = Domain(GPU, os.getuid(), int(kind[-1]))
    (root / domain.key).mkdir(parents=True)
    host, daemon = near_host(root, domain) if kind.startswith("near") else far_host(root, domain, directory)
    host.beside(domain, "daemon").write_text(json.dumps([daemon.pid, start_ticks(daemon.pid), boot_id()]))
    daemon_of = host.mps(domain)
    daemon_of.open(GPU, domain.uid, QUARTER)
    for task in ("t1", "t2"):
        daemon_of.admit(task, QUARTER)
    made = Beside(host, domain, Ledger(directory / "ledger.sqlite"), daemon)
    yield made
    made.end()
    shutil.rmtree(root)


FAR: Final = [pytest.param(f"far {protocol}", marks=pytest.mark.long) for protocol in (2, 3)]


@pytest.fixture(params=["near 2", "near 3", *FAR])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Beside]:
    with beside(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def place2(tmp_path: Path) -> Iterator[Beside]:
    with beside("near 2", tmp_path) as made:
        yield made


@pytest.fixture
def far2(tmp_path: Path) -> Iterator[Beside]:
    with beside("far 2", tmp_path) as made:
        yield made


def test_a_daemon_that_answers_is_left_alone(place: Beside) -> None:
    place.play()
    watch = place.watch()
    assert watch.look() == ()
    assert (watch.state, place.said, place.closed()) == (State.ACTIVE, [], [])
    assert watch.explained(CRASHED) == CRASHED


def test_a_fault_closes_the_card_and_ends_the_task_once(place: Beside) -> None:
    place.play()
    watch = place.watch()
    watch.look()
    place.play("FAULT")
    assert watch.look() == (Action.CLOSE, Action.EVICT)
    assert watch.look() == (Action.EVICT,)
    assert place.evictions == 1
    assert place.closed() == ["its MPS daemon is fault"]
    place.play("ACTIVE", (OTHER,))
    assert watch.look() == (Action.OPEN,)
    assert place.closed() == []


def test_a_fault_that_only_the_log_tells_of_is_seen_as_well(place: Beside) -> None:
    """The daemon of 535 cannot be asked for a server's state, and what protocol 3 calls it is not known."""
    place.play(old=True)
    watch = place.watch()
    assert watch.look() == ()
    place.fault(OTHER)
    assert watch.look() == (Action.CLOSE, Action.EVICT)
    place.play(clients=(), old=True)
    assert watch.look() == (Action.OPEN,)


#: Pids that the log names, those that the kernel names, and whether it was not this task's fault.
FAULTS = {
    "the log names another": ([OTHER], [], True),
    "the log names this one": ([MINE], [], False),
    "the log names both": ([MINE, OTHER], [], True),
    "the kernel names this one, the log both": ([MINE, OTHER], [MINE], False),
    "the kernel names the server": ([OTHER], [SERVER], True),
}


@pytest.mark.parametrize(("log", "kernel", "infrastructure"), FAULTS.values(), ids=FAULTS)
def test_only_the_culprit_fails_as_its_own(
    place: Beside, log: list[int], kernel: list[int], infrastructure: bool
) -> None:
    place.play()
    watch = place.watch()
    watch.look()
    for pid in log:
        place.fault(pid)
    place.xids.update(kernel)
    ended = watch.explained(CRASHED)
    assert ended.infrastructure is infrastructure
    if infrastructure:
        assert (ended.exit_status, ended.why) == (
            None,
            f"the MPS daemon of {GPU} failed: one of its clients had a fatal fault",
        )
    else:
        assert (ended.exit_status, ended.why) == (
            1,
            f"the task had a fatal fault on {GPU}, which ended all tasks of its user there",
        )


def test_fault_with_one_client_is_that_clients_own(place: Beside) -> None:
    place.play(clients=(MINE,))
    place.limits = {"t1": QUARTER}
    watch = place.watch()
    watch.look()
    place.fault(99)
    assert watch.explained(CRASHED).infrastructure is False


def test_a_fault_before_the_task_is_not_its_matter(place: Beside) -> None:
    place.fault(OTHER)
    place.xids.add(MINE)  # of an earlier process
    place.log(f"Server {SERVER} exited with status 1")
    place.play()
    watch = place.watch()
    assert watch.look() == ()
    assert watch.explained(CRASHED) == CRASHED


def test_a_success_stays_one_while_the_daemon_fails(place: Beside) -> None:
    place.play()
    watch = place.watch()
    place.fault(OTHER)
    assert watch.explained(Ended(exit_status=0)) == Ended(exit_status=0)


def test_evicted_task_has_not_succeeded(place: Beside) -> None:
    """A command that takes SIGTERM for its end exits with 0, and is to run again."""
    place.play("FAULT")
    watch = place.watch()
    watch.look()
    ended = watch.explained(Ended(exit_status=0))
    assert (ended.exit_status, ended.infrastructure) == (None, True)


def test_a_killed_daemon_ends_the_task_as_the_infrastructures_fault(place: Beside) -> None:
    place.play()
    watch = place.watch()
    place.end()
    assert watch.look() == (Action.CLOSE, Action.EVICT, Action.KILL)
    assert (place.evictions, place.closed()) == (1, ["its MPS daemon is gone"])
    ended = watch.explained(Ended(signal=signal.SIGTERM))
    assert (ended.infrastructure, ended.signal) == (True, None)
    assert ended.why == f"the MPS daemon of {GPU} failed: its process has ended"


def test_a_task_that_cannot_be_ended_now_is_ended_at_the_next_look(
    place: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.play()
    watch = place.watch()
    place.end()
    ends: list[bool] = []

    def evict() -> None:
        ends.append(True)
        if len(ends) < 3:
            raise Unavailable("the agent does not answer", remedy="wait")

    monkeypatch.setattr(watch, "_evict", evict)
    for _ in range(2):
        with pytest.raises(Unavailable):
            watch.look()
    watch.look()
    watch.look()
    assert len(ends) == 3


def test_watch_that_died_on_a_hung_daemon_leaves_no_closed_card(place2: Beside) -> None:
    place2.play()
    place2.ledger.note(CardTrace(GPU, CLOSED, "its MPS daemon is hung"))
    place2.watch().look()
    assert place2.closed() == []


def test_a_daemon_that_was_killed_before_any_look_explains_the_end(place: Beside) -> None:
    place.play()
    watch = place.watch()
    place.end()
    assert watch.explained(CRASHED).infrastructure is True


def test_a_hung_daemon_closes_the_card_and_then_ends_the_task(far2: Beside) -> None:
    far2.play()
    watch = far2.watch()
    far2.daemon.send_signal(signal.SIGSTOP)
    assert watch.look() == (Action.CLOSE,)
    assert (far2.evictions, far2.closed()) == (0, ["its MPS daemon is hung"])
    assert watch.look() == (Action.EVICT,)
    assert far2.evictions == 1
    far2.daemon.send_signal(signal.SIGCONT)
    assert watch.look() == (Action.OPEN,)
    assert far2.closed() == []


def test_a_daemon_that_speaks_with_others_is_left_alone(
    place2: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    place2.play()
    watch = place2.watch()

    def busy(*given: object) -> None:
        raise Busy("the MPS daemon spoke with others", remedy="")

    monkeypatch.setattr(Mps2, "servers", busy)
    assert watch.look() == watch.look() == ()
    assert (watch.state, place2.closed(), place2.evictions) == (State.ACTIVE, [], 0)
    assert place2.said == ["the MPS daemon spoke with others"] * 2
    assert watch.explained(CRASHED) == CRASHED


def test_a_server_with_all_its_clients_closes_the_card_until_one_leaves(place: Beside) -> None:
    watch, third = place.watch(), 4711
    place.play(clients=(MINE, OTHER, third))
    watch.look()
    watch.look()
    assert place.closed() == [mps_watch.FULL]
    assert place.said == [f"{GPU} takes no more shares: {mps_watch.FULL}, 3"]
    assert place.evictions == 0
    place.play()
    place.watch().look()  # whoever closed it may be gone
    assert place.closed() == []


def test_settings_that_a_client_changed_are_set_again(place: Beside) -> None:
    place.play()
    watch, daemon = place.watch(), place.host.mps(place.domain)
    if place.domain.protocol == 3:
        daemon.control.call("namespace", "set", "default", "--server=domain", "--active-thread-percentage=90")
    else:
        daemon.control.ask("set_default_active_thread_percentage 90")
    assert watch.look() == ()
    daemon.holds(place.limits, QUARTER)
    assert len(place.said) == 1
    watch.look()
    assert len(place.said) == 1


def test_settings_are_left_to_who_has_the_cards_turn(place2: Beside) -> None:
    place2.play()
    watch, daemon = place2.watch(), place2.host.mps(place2.domain)
    daemon.control.ask("set_default_active_thread_percentage 90")
    with place2.ledger.turn([GPU]):
        watch.look()
        assert daemon.control.ask("get_default_active_thread_percentage") == ["90.0"]
    watch.look()
    assert daemon.control.ask("get_default_active_thread_percentage") == ["25.0"]


def test_many_lines_hide_no_fault(place2: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client makes a line whenever it likes, and chooses words of some: the end of the log counts."""
    monkeypatch.setattr(mps_watch, "MAX_LOG", 4096)
    place2.play(old=True)
    watch = place2.watch()
    place2.log(*["NEW UI"] * 400)
    place2.fault(OTHER)
    assert watch.look() == (Action.CLOSE, Action.EVICT)


def test_words_within_a_line_are_no_fault_where_the_log_is_read_from_the_middle(
    place2: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_watch, "MAX_LOG", 1024)
    place2.play(old=True)
    watch = place2.watch()
    words = "[2026-11-22 06:58:01.100 Other 1] Server is handling a fatal GPU error."
    place2.log("Cmd: " + "x" * 4096 + words + "y" * (2048 - len(words) - 1))
    assert watch.look() == ()


def test_the_log_stays_short(place2: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_watch, "MAX_LOG", 4096)
    place2.play()
    watch, log = place2.watch(), place2.host.beside(place2.domain, "log")
    place2.log(*["NEW UI"] * 100)
    watch.look()
    assert log.stat().st_size == 0
    place2.fault(OTHER)
    assert watch.explained(CRASHED).infrastructure is True  # read from the new beginning


def test_the_thread_looks_until_it_is_stopped(place2: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_watch, "PIDS_S", 0.02)
    monkeypatch.setattr(mps_watch, "LOOK_S", 0.02)
    place2.play()
    watch = place2.watch()
    watch.start()
    place2.end()
    wait_until("the task is ended", lambda: place2.evictions == 1)
    watch.stop()


def test_a_look_under_way_when_the_task_is_over_closes_nothing(
    place2: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card may be another's by then, with a daemon of its own."""
    watch = place2.watch()
    place2.end()
    see = watch._sight

    def see_slowly() -> mps_watch.Sight | None:
        seen = see()
        watch.stop()
        return seen

    monkeypatch.setattr(watch, "_sight", see_slowly)
    assert watch.look() == ()
    assert (place2.closed(), place2.evictions) == ([], 0)


def test_watch_survives_an_unforeseen_exception(place2: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_watch, "PIDS_S", 0.02)
    monkeypatch.setattr(mps_watch, "LOOK_S", 0.02)
    place2.play()
    watch = place2.watch()
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "_sight", lambda _: int("pid"))
        watch.start()
        wait_until("it says so", lambda: any("cannot be watched: ValueError" in line for line in place2.said))
    place2.end()
    wait_until("the task is ended", lambda: place2.evictions == 1)
    watch.stop()


def test_clients_are_drained_before_they_are_killed(place: Beside) -> None:
    place.play()
    assert mps.drain(place.host, place.domain, [MINE, 9999], 20.0) == ()
    daemon = place.host.mps(place.domain)
    assert daemon.clients(SERVER) == (OTHER,)


def test_a_client_that_does_not_let_go_is_named(place: Beside) -> None:
    fake_mps.play(
        str(place.host.pipes(place.domain)),
        servers={str(SERVER): "ACTIVE"},
        clients=[[SERVER, MINE]],
        sticky=[MINE],
    )
    assert mps.drain(place.host, place.domain, [MINE], 0.2) == (MINE,)


def test_without_a_daemon_nothing_is_to_be_drained(place: Beside) -> None:
    place.end()
    assert mps.drain(place.host, place.domain, [MINE]) == ()
