"""What every MPS daemon must do for us: NVIDIA's real one of 535, and fakes of both protocols, asked alike."""

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Final

import pytest

from mesos_gpu.adapters.mps2 import Mps2
from mesos_gpu.adapters.mps3 import MIN, Mps3, namespace_of
from mesos_gpu.adapters.mps_control import (
    PERCENT,
    Absent,
    Busy,
    Control,
    Limits,
    Mps,
    SettingsRejected,
    Silent,
)
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from tests.conftest import wait_until
from tests.doubles.driver_packages import CURRENT, install
from tests.doubles.mps import fake_mps
from tests.mps_hosts import Near, NearControl

GPU, UID = GpuId("GPU-00112233-4455-6677-8899-aabbccddeeff"), 65534
QUARTER, HALF = Limits(25, 20480), Limits(50, 1500)


class Daemon:
    """A daemon in a directory of its own, and what speaks to it."""

    def __init__(self, mps: Mps) -> None:
        self.mps = mps
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, most: Limits = QUARTER) -> None:
        """Start it, in the foreground, and wait until it answers."""
        control = self.mps.control
        arguments, more = self.mps.daemon(most)
        self.process = subprocess.Popen(
            [control.program, *arguments],
            env={**control.environment(), "CUDA_VISIBLE_DEVICES": GPU, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        wait_until("it answers", self.answers)

    def answers(self) -> bool:
        """Return whether it answers."""
        try:
            self.mps.servers()
        except Unavailable:
            return False
        return True

    def send(self, number: int) -> None:
        """Signal it; wait for its end after SIGKILL."""
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def play(self, **state: object) -> None:
        """Have the fake see this."""
        fake_mps.play(str(self.mps.control.pipes), **state)

    def end(self) -> None:
        """Kill it, if it lives."""
        if self.process is not None and self.process.poll() is None:
            self.send(signal.SIGKILL)


class NearDaemon(Daemon):
    """A fake daemon in this process."""

    def start(self, most: Limits = QUARTER) -> None:
        """Start it."""
        _, more = self.mps.daemon(most)
        self._near.start(more.get(PERCENT, "100"))

    def send(self, number: int) -> None:
        """Kill it."""
        assert number == signal.SIGKILL
        self._near.end()

    def end(self) -> None:
        """End it."""
        self._near.end()

    @property
    def _near(self) -> Near:
        control = self.mps.control
        assert isinstance(control, NearControl)
        assert control.near is not None
        return control.near


def made(kind: str, program: Path) -> Daemon:
    """Return a daemon of a kind, not started: "near 2" and "near 3" in this process, others as processes."""
    pipes = short_directory() / "p"
    pipes.mkdir()
    where, protocol = kind.split()
    if where == "near":
        control: Control = NearControl(program, pipes, near=Near(pipes, int(protocol)))
    else:
        control = Control(program, pipes, deadline_s=20.0)  # a fake is a Python, and the machine may be busy
    mps = Mps3(control) if protocol == "3" else Mps2(control)
    return NearDaemon(mps) if where == "near" else Daemon(mps)


def short_directory() -> Path:
    """Make the directory of a test: sockets need short paths."""
    path = Path(f"/tmp/mgm-{os.getpid()}")
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def real_program(open_directory: Path) -> Path:
    try:
        install(open_directory, CURRENT, only=("nvidia-cuda-mps",))
    except Unavailable as error:
        pytest.skip(error.what)
    return open_directory / "usr/bin/nvidia-cuda-mps-control"


@contextmanager
def daemon_of(kind: str, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Give a daemon of a kind, and end it."""
    if kind == "real 2":
        program = request.getfixturevalue("real_program")
    else:
        program = Path(fake_mps.program(str(request.getfixturevalue("tmp_path")), int(kind[-1])))
    daemon = made(kind, program)
    try:
        yield daemon
    finally:
        daemon.end()
        shutil.rmtree(daemon.mps.control.pipes.parent)


PROCESSES: Final = [pytest.param(f"fake {protocol}", marks=pytest.mark.long) for protocol in (2, 3)]


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """NVIDIA's, started and opened."""
    with daemon_of("real 2", request) as daemon:
        daemon.start()
        daemon.mps.open(GPU, UID, QUARTER)
        yield daemon


@pytest.fixture(params=["real 2", "near 2", "near 3", *PROCESSES])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Each kind; not started."""
    with daemon_of(request.param, request) as daemon:
        yield daemon


@pytest.fixture(params=["real 2", "fake 2", "fake 3"])
def process(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Each kind that is a process; not started."""
    with daemon_of(request.param, request) as daemon:
        yield daemon


@pytest.fixture(params=["near 2", "near 3", *PROCESSES])
def fake(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A fake, started."""
    with daemon_of(request.param, request) as daemon:
        daemon.start()
        yield daemon


@pytest.fixture(params=["near 3", PROCESSES[1]])
def three(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A fake of protocol 3, started."""
    with daemon_of(request.param, request) as daemon:
        daemon.start()
        yield daemon


# --- settings


def test_mps_daemon_has_the_limits_that_were_set(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, HALF)
    daemon.mps.admit("t1", QUARTER)
    daemon.mps.holds({"t1": QUARTER}, HALF)


def test_mps_daemon_may_be_opened_again_with_larger_limits(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, QUARTER)
    daemon.mps.admit("t1", QUARTER)
    daemon.mps.open(GPU, UID, HALF)
    daemon.mps.admit("t2", HALF)
    daemon.mps.holds({"t1": QUARTER, "t2": HALF}, HALF)


def test_mps_limits_of_a_task_may_change(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, HALF)
    daemon.mps.admit("t1", QUARTER)
    daemon.mps.admit("t1", HALF)
    daemon.mps.holds({"t1": HALF}, HALF)


@pytest.mark.parametrize("limits", [Limits(101, 1024), Limits(0, 1024), Limits(25, 0)], ids=str)
def test_mps_limits_that_are_not_taken_are_an_error(daemon: Daemon, limits: Limits) -> None:
    daemon.start()
    by = (
        daemon.mps.admit
        if isinstance(daemon.mps, Mps3)
        else lambda _, given: daemon.mps.open(GPU, UID, given)
    )
    daemon.mps.open(GPU, UID, QUARTER)
    with pytest.raises(SettingsRejected):
        by("t1", limits)


def test_mps_limits_changed_by_another_are_seen(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, QUARTER)
    daemon.mps.admit("t1", QUARTER)
    if isinstance(daemon.mps, Mps3):
        name = namespace_of("t1")
        daemon.mps.control.call("namespace", "set", name, "--server=domain", "--active-thread-percentage=77")
    else:
        daemon.mps.control.ask("set_default_active_thread_percentage 77")
    with pytest.raises(SettingsRejected):
        daemon.mps.holds({"t1": QUARTER}, QUARTER)


def test_mps_limits_are_lost_by_a_restart_and_can_be_set_again(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, HALF)
    daemon.mps.admit("t1", HALF)
    daemon.send(signal.SIGKILL)
    daemon.start(HALF)
    with pytest.raises(SettingsRejected):
        daemon.mps.holds({"t1": HALF}, HALF)
    daemon.mps.open(GPU, UID, HALF)
    daemon.mps.admit("t1", HALF)
    daemon.mps.holds({"t1": HALF}, HALF)


def test_mps_client_is_told_its_pipes_and_limits(daemon: Daemon) -> None:
    client = daemon.mps.client("t1", QUARTER)
    if isinstance(daemon.mps, Mps3):
        assert (client.pipes, client.env) == (f"domain/{namespace_of('t1')}", {})
    else:
        assert (client.pipes, client.env) == (
            ".",
            {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M"},
        )


# --- no answer


def test_mps_daemon_that_does_not_exist_is_absent(daemon: Daemon) -> None:
    with pytest.raises(Absent, match="Cannot find MPS control daemon process"):
        daemon.mps.servers()


def test_mps_daemon_that_was_killed_is_absent(process: Daemon) -> None:
    process.start()
    process.send(signal.SIGKILL)
    with pytest.raises(Absent):
        process.mps.servers()


def test_mps_daemon_that_is_stopped_is_silent(process: Daemon) -> None:
    process.start()
    control = Control(process.mps.control.program, process.mps.control.pipes, deadline_s=0.5)
    process.mps.control = control
    process.send(signal.SIGSTOP)
    with pytest.raises(Silent, match=r"did not answer .* within 0\.5 s"):
        process.mps.servers()
    process.send(signal.SIGCONT)
    process.mps.control = Control(control.program, control.pipes, deadline_s=20.0)
    process.mps.servers()


def test_mps_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    mps = Mps2(Control(tmp_path / "nvidia-cuda-mps-control", tmp_path))
    with pytest.raises(Unavailable, match="cannot be run: No such file"):
        mps.servers()


@contextmanager
def conversation(daemon: Daemon) -> Iterator["subprocess.Popen[bytes]"]:
    """Another's, which goes on until its input is closed."""
    control = daemon.mps.control
    screen, its_end = os.openpty()  # to a pipe the program would write nothing before its end
    with subprocess.Popen(
        [control.program], env=control.environment(), stdin=subprocess.PIPE, stdout=its_end
    ) as other:
        try:
            assert other.stdin is not None
            other.stdin.write(b"set_default_active_thread_percentage 25\n")
            other.stdin.flush()
            assert select.select([screen], [], [], 60)[0], "it answers"
            yield other
        finally:
            other.kill()
            os.close(screen)
            os.close(its_end)


def test_mps_daemon_in_another_conversation_is_waited_for(real: Daemon) -> None:
    with conversation(real) as other:
        assert other.stdin is not None
        end = Timer(0.5, other.stdin.close)
        end.start()
        real.mps.open(GPU, UID, HALF)
        assert not end.is_alive(), "it was answered only then"
    real.mps.holds({}, HALF)


def test_mps_daemon_in_an_endless_conversation_is_busy(real: Daemon) -> None:
    control = real.mps.control
    real.mps.control = Control(control.program, control.pipes, deadline_s=0.5)
    with conversation(real):
        for ask in (real.mps.servers, lambda: real.mps.holds({}, QUARTER)):
            with pytest.raises(Busy, match=r"was busy with other clients for 0\.5 s"):
                ask()
    real.mps.control = control
    assert real.mps.servers() == ()  # whoever spoke with it was killed meanwhile


def test_mps_daemon_answers_many_at_once(real: Daemon) -> None:
    def ask(number: int) -> None:
        for _ in range(5):
            real.mps.open(GPU, UID, QUARTER)
            real.mps.holds({}, QUARTER)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [None] * 4


# --- servers and clients


def test_mps_termination_without_clients_is_harmless(daemon: Daemon) -> None:
    daemon.start()
    daemon.mps.open(GPU, UID, QUARTER)
    daemon.mps.terminate(4711, 4712)
    assert daemon.mps.clients(4711) == ()


def test_mps_clients_are_listed_and_terminated(fake: Daemon) -> None:
    fake.mps.open(GPU, UID, QUARTER)
    fake.play(servers={"1234567": "ACTIVE"}, clients=[[1234567, 2345678], [1234567, 3456789]])
    (server,) = fake.mps.servers()
    assert server.pid == 1234567
    assert not server.fault
    assert fake.mps.clients(server.pid) == (2345678, 3456789)
    fake.mps.terminate(server.pid, 2345678)
    assert fake.mps.clients(server.pid) == (3456789,)


def test_mps_server_in_fault_says_so(fake: Daemon) -> None:
    fake.mps.open(GPU, UID, QUARTER)
    fake.play(servers={"11": "FAULT"}, clients=[[11, 21]])
    assert [server.fault for server in fake.mps.servers()] == [True]


def test_mps_server_that_runs_gets_new_limits(fake: Daemon) -> None:
    fake.play(servers={"11": "ACTIVE"})
    fake.mps.open(GPU, UID, QUARTER)
    fake.mps.holds({}, QUARTER)
    if isinstance(fake.mps, Mps2):
        assert fake.mps.control.ask("get_active_thread_percentage 11") == ["25.0"]
        fake.mps.control.ask("set_active_thread_percentage 11 77")
        with pytest.raises(SettingsRejected, match="those of its server 11"):
            fake.mps.holds({}, QUARTER)


# --- protocol 3


def test_mps_default_namespace_has_the_least_limits(three: Daemon) -> None:
    three.mps.open(GPU, UID, HALF)
    rows = three.mps.control.call("namespace", "list", "--server=domain", "--format=csv,noheader")
    assert [row for row in rows if row.startswith(f"default,domain,Ready,{MIN.memory_mib}M,{MIN.percent},")]
    three.mps.control.call("namespace", "set", "default", "--server=domain", "--active-thread-percentage=90")
    with pytest.raises(SettingsRejected, match="namespace default"):
        three.mps.holds({}, HALF)


def test_mps_server_that_ends_at_once_is_an_error(three: Daemon) -> None:
    """For a card that is not there: its clients would run without limits."""
    three.play(absent=[GPU])
    with pytest.raises(SettingsRejected, match=f"has no server for {GPU}"):
        three.mps.open(GPU, UID, HALF)


def test_mps_refusal_has_the_daemons_words_and_an_absent_daemon_is_none(three: Daemon) -> None:
    with pytest.raises(
        SettingsRejected, match="refuses 'namespace create X --server=domain': invalid name X"
    ):
        three.mps.control.call("namespace", "create", "X", "--server=domain")
    three.mps.quit(1.0)
    with pytest.raises(Absent):
        three.mps.servers()


@pytest.mark.parametrize(
    ("shown", "is_it"),
    [("1500M", True), ("1G", True), ("1536000K", True), ("2G", False), ("1M", False)],
)
def test_mps_limit_may_be_shown_in_another_unit(three: Daemon, shown: str, is_it: bool) -> None:
    three.mps.open(GPU, UID, HALF)
    three.mps.admit("t1", HALF)
    name = namespace_of("t1")
    three.mps.control.call("namespace", "set", name, "--server=domain", f"--pinned-memory-limit={shown}")
    if is_it:
        three.mps.holds({"t1": HALF}, HALF)
    else:
        with pytest.raises(SettingsRejected):
            three.mps.holds({"t1": HALF}, HALF)


def test_mps_namespaces_have_names_that_the_daemon_takes() -> None:
    names = {namespace_of(task) for task in ("job-1.1", "JOB-1.1", "job-1.1/../../x", "ä" * 300)}
    assert len(names) == 4
    assert all(name.replace("_", "").isalnum() and name.islower() and len(name) <= 64 for name in names)
