"""Inner processes of tasks: on this machine's kernel, and in an emulator for the other architecture."""

import _socket
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.confinement import inner, inner_calls
from isolator.confinement.inner_calls import Command, Inner, NotExecuted
from isolator.host import processes
from tests.conftest import wait_until
from tests.kernel.confinement.test_gate import RUNNERS

pytestmark = pytest.mark.kernel
ENV = {"PATH": "/no/such:/usr/bin:/bin", "WORD": "x" * 100_000}


@pytest.fixture
def adopting() -> Iterator[None]:
    """Make this process the reaper of orphaned descendants during the test."""
    processes.become_subreaper()
    yield
    ctypes.CDLL(None).prctl(processes.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def first(adopting: None) -> Iterator[Inner]:
    """An inner process beside a child of this one, as a task has it."""
    before = set(processes.descendants(os.getpid()))  # schedulers of other tests, for example
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    task = os.fork()
    if task == 0:
        for file in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                os.set_inheritable(file, file < 3)
        inner.leave(theirs.fileno(), ours.fileno())
        os.execv("/bin/sleep", ["sleep", "600"])
    theirs.close()
    # Until it executes its program, the child reads the first word from the same socket, and could take an answer.
    wait_until("the child has become the task", lambda: name_of(task) == "sleep")
    with contextlib.closing(Inner(ours)) as process:
        process.call("getpid")
        yield process
    os.kill(task, signal.SIGKILL)
    os.waitpid(task, 0)
    while left := set(processes.descendants(os.getpid())) - before:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def run(first: Inner, *argv: str) -> tuple[int | None, bytes]:
    """Return the exit code and the output of a command."""
    with contextlib.ExitStack() as files:
        reads, writes = os.pipe()
        files.callback(os.close, reads)
        null, directory = os.open("/dev/null", os.O_RDONLY), os.open("/tmp", os.O_PATH)
        try:
            command = Command(first.session(), argv, ENV, (null, writes, writes), directory, terminal=False)
        finally:
            for file in (null, directory, writes):
                os.close(file)
        output = b"".join(iter(lambda: os.read(reads, 65536), b""))
        code = command.wait(30)
        assert command.processes() == []
        command.close()
        wait_until("its session is gone", command.gone)
        return code, output


def test_command_has_its_directory_streams_variables_and_code(first: Inner) -> None:
    assert run(first, "sh", "-c", "pwd; echo ${#WORD}; echo err >&2; exit 7") == (7, b"/tmp\n100000\nerr\n")
    assert run(first, "sh", "-c", "kill -9 $$") == (-9, b"")
    assert run(first, "/bin/sh", "-c", "ls /proc/self/fd | wc -l") == (0, b"4\n"), (
        "its streams, and what ls reads"
    )
    for program, number in (("no-such", 2), ("/no/such", 2), ("/etc/passwd", 13)):
        with pytest.raises(NotExecuted, match=program) as refused:
            run(first, program)
        assert refused.value.errno == number


def test_command_leads_a_session_and_its_orphans_are_found_and_collected(first: Inner) -> None:
    null, root = os.open("/dev/null", os.O_RDWR), os.open("/", os.O_PATH)
    script = "(setsid sleep 86430 &); sleep 86430 & kill -9 $$"
    command = Command(first.session(), ("sh", "-c", script), ENV, (null, null, null), root, terminal=False)
    os.close(null)
    os.close(root)
    assert command.wait(30) == -9
    wait_until("both sleep", lambda: [name_of(pid) for pid in command.processes()] == ["sleep", "sleep"])
    orphans = command.processes()
    assert len({os.getsid(pid) for pid in orphans}) == 2
    processes.send(orphans, signal.SIGKILL)
    wait_until("they are collected", lambda: command.processes() == [])
    command.close()
    wait_until("its session is gone", command.gone)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_inner_process_that_is_ended_or_stopped_starts_nothing(
    first: Inner, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A stopped inner process works again when it is continued; its late answers are discarded."""
    monkeypatch.setattr(inner_calls, "ANSWER_S", 0.2)
    pid = first.call("getpid")
    os.kill(pid, number)
    for _ in range(2):
        with pytest.raises(OSError, match="has ended" if number == signal.SIGKILL else "does not answer"):
            first.session()
    if number == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
        monkeypatch.setattr(inner_calls, "ANSWER_S", 30.0)
        assert run(first, "echo", "word") == (0, b"word\n")


def test_inner_process_that_is_killed_before_it_reads_a_call_has_ended(first: Inner) -> None:
    pid = first.call("getpid")
    os.kill(pid, signal.SIGSTOP)
    wait_until("it is stopped", lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
    first.ask("getpid")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessLookupError, match="has ended"):
        first.answer(30.0)


def test_inner_process_and_its_sessions_are_not_dumpable_and_hold_next_to_nothing(first: Inner) -> None:
    pid, session = first.call("getpid"), first.session()
    try:
        for each in (pid, session.pid):
            assert os.stat(f"/proc/{each}").st_uid == 0
            assert session.call("prctl", 3) == 0, "PR_GET_DUMPABLE"
            assert Path(f"/proc/{each}/environ").read_bytes() == b""
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
            size = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            assert size <= 64, "KiB"
        assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
    finally:
        session.close()


def test_inner_process_ends_with_its_socket(first: Inner) -> None:
    pid, session = first.call("getpid"), first.session()
    first.close()
    session.close()
    wait_until("both have ended", lambda: not is_alive(pid) and not is_alive(session.pid))


def test_session_whose_socket_is_closed_is_reaped(first: Inner) -> None:
    session = first.session()
    assert is_alive(session.pid)
    session.close()
    first.reap(session.pid, 30)
    assert not Path(f"/proc/{session.pid}").exists()


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("machine", [machine for machine in ("x86_64", "aarch64") if machine in RUNNERS])
def test_program_of_a_machine_answers_and_ends(tmp_path: Path, machine: str) -> None:
    """The program makes a requested call; any other message ends it."""
    file = tmp_path / "inner"
    file.write_bytes(inner.program(machine))
    file.chmod(0o755)
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    with subprocess.Popen([*RUNNERS[machine], str(file)], stdin=theirs.fileno()) as process:
        theirs.close()
        with contextlib.closing(ours):
            ours.settimeout(30)
            assert ours.recv(64)[:8] == bytes(8)
            number = {"x86_64": 39, "aarch64": 172}[machine]  # getpid
            ours.send(number.to_bytes(8, "little") + bytes(48))
            answer = ours.recv(64)
            assert (len(answer), int.from_bytes(answer[:8], "little")) == (16, process.pid)
            assert answer[8:12] == b"\xff\xff\xff\xff", "no file came along"
            ours.send(b"x")
            assert process.wait(30) == 0


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183), ("riscv64", None)])
def test_program_is_one_small_file(machine: str, number: int | None) -> None:
    file = inner.program(machine)
    if number is None:
        assert file == b""
    else:
        assert (file[:4], int.from_bytes(file[18:20], "little"), len(file) < 500) == (
            b"\x7fELF",
            number,
            True,
        )
