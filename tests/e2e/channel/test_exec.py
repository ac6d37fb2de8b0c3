"""Commands in running jobs: as the job runs, with every byte, signals and exit codes; nothing is left of them."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.runs.joining import MARK
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
EVERY_BYTE = bytes(range(256))
RIGHTS = (
    "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
)  # fmt: skip


@pytest.fixture(scope="module")
def job(stack: Stack) -> Iterator[str]:
    with Client(stack.url) as client:
        request = {
            "name": "host",
            "command": "echo $$; exec sleep 3600",
            "gpus": 1,
            "cpus": 0.1,
            "mem_mib": 64,
        }
        id = client.submit({**request, "env": {"GREETING": "hello"}})["id"]
        wait_until("it runs", lambda: client.job(id)["state"] == "running")
        yield id
        client.kill(id)
        wait_until("it has ended", lambda: client.job(id)["ended_at"])


def words(stack: Stack, job: str, *options_and_command: str) -> list[str]:
    return [sys.executable, "-m", "mesos_gpu", "exec", "--url", stack.url, job, *options_and_command]


def run(stack: Stack, job: str, *argv: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return command("exec", "--url", stack.url, job, *argv, data=data)


def marked() -> list[str]:
    """Processes on this host that a channel has started."""
    commands = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"\0{MARK}=".encode() in b"\0" + Path(f"/proc/{name}/environ").read_bytes():
                commands.append(Path(f"/proc/{name}/cmdline").read_bytes().decode())
    return commands


def nap(seconds: int) -> str:
    """Return the argument of a `sleep` that is looked for on the whole host: no other run of the tests has it."""
    return f"{seconds}.{os.getpid():07}"


def of_this(text: str) -> list[str]:
    return [each for each in marked() if text in each]


def rights_of(process: Path) -> dict[str, str]:
    """What a process may, by its directory of /proc."""
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return {name: status[name].strip() for name in RIGHTS}


def surroundings(pid: int) -> dict[str, object]:
    """Where a process of this host is, and what it may."""
    names = sorted(os.listdir(f"/proc/{pid}/ns"))
    return {
        **rights_of(Path(f"/proc/{pid}")),
        **{name: os.readlink(f"/proc/{pid}/ns/{name}") for name in names},
        "cgroup": Path(f"/proc/{pid}/cgroup").read_text(),
        "directory": os.readlink(f"/proc/{pid}/cwd"),
        "devices": sorted(os.listdir(f"/proc/{pid}/root/dev")),
    }


def test_a_command_runs_as_the_job_does(stack: Stack, job: str) -> None:
    """User, groups, capabilities, filters, namespaces, cgroups, what it sees of /dev, and its environment."""
    with Client(stack.url) as client:
        said = wait_until(
            "it has said who it is", lambda: client.logs(job, stream="stdout", offset=0, length=99)["data"]
        )
    main = int(said)
    script = "echo $$; echo $GREETING $NVIDIA_VISIBLE_DEVICES; read line"
    argv = words(stack, job, "-i", "--", "sh", "-c", script)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        pid = int(ran.stdout.readline())
        assert surroundings(pid) == surroundings(main)
        assert ran.stdout.readline().startswith(b"hello GPU-")
        ran.communicate(b"\n", timeout=60)
    assert re.search(r"'nvidia\d", str(surroundings(main)["devices"]))


def test_exec_carries_every_byte_in_and_out(stack: Stack, job: str) -> None:
    data = EVERY_BYTE * 4096  # 1 MiB: more than any window
    ran = run(stack, job, "-i", "--", "cat", data=data)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout == data


def test_exec_keeps_both_streams_apart_and_gives_no_stdin_unless_asked(stack: Stack, job: str) -> None:
    ran = run(stack, job, "--", "sh", "-c", "cat; echo out; echo err >&2; exit 7", data=b"not for it")
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"out\n", b"err\n", 7)


@pytest.mark.parametrize(
    ("script", "code"),
    [("kill -KILL $$", 137), ("kill -SEGV $$", 139), ("exit 255", 255), ("true", 0)],
)
def test_exec_has_the_exit_code_of_its_command(stack: Stack, job: str, script: str, code: int) -> None:
    assert run(stack, job, "--", "sh", "-c", script).returncode == code


@pytest.mark.parametrize(
    ("program", "options", "code", "why", "finds"),
    [
        ("no-such-program", ("-i",), 127, "No such file or directory", "find / -name no-such-program;"),
        ("/no/such program", (), 127, "No such file or directory", "-- ls -l /no;"),
        ("/etc/passwd", ("-t",), 126, "Permission denied", "sh -c 'id; ls -lL /etc/passwd'"),
    ],
)
def test_exec_of_no_program_has_the_code_of_a_shell_and_names_a_remedy(
    stack: Stack, job: str, program: str, options: tuple[str, ...], code: int, why: str, finds: str
) -> None:
    ran = run(stack, job, *options, "--", program, data=EVERY_BYTE * 1024)
    first, second = ran.stderr.decode().splitlines()
    assert (first, ran.stdout, ran.returncode) == (f"Error: {program}: {why}", b"", code)
    assert second.startswith("To fix: ")
    assert finds in second
    assert of_this(program) == []


def test_a_signal_goes_to_the_command(stack: Stack, job: str) -> None:
    script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(words(stack, job, "--", "sh", "-c", script), stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == b"ready\n"
        ran.send_signal(signal.SIGTERM)
        assert (ran.stdout.read(), ran.wait(60)) == (b"caught\n", 9)


def test_a_command_that_reads_nothing_hears_signals_with_a_full_stdin(stack: Stack, job: str) -> None:
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    argv = words(stack, job, "-i", "--", "sh", "-c", script)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as ran:
        assert ran.stdout is not None
        assert ran.stdin is not None
        assert ran.stdout.readline() == b"ready\n"
        os.set_blocking(ran.stdin.fileno(), False)
        sent, quiet_since = 0, time.monotonic()
        while time.monotonic() - quiet_since < 1.0:  # until nobody takes any more
            if select.select([], [ran.stdin], [], 0.1)[1]:
                sent, quiet_since = sent + (ran.stdin.write(bytes(4096)) or 0), time.monotonic()
        assert sent < 4 << 20  # a window, and what pipes and sockets keep
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == 9


def test_a_terminal_has_the_clients_size_and_hears_of_its_changes(stack: Stack, job: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
    script = (
        "t=$(tty); echo $t; test -O $t && stat -c %a $t; stty size; trap 'stty size' WINCH; echo $TERM; "
        "test -t 0 && echo tty; while :; do sleep 0.05; done"
    )
    environment = {**os.environ, "TERM": "tmux-256color"}
    ran = subprocess.Popen(
        words(stack, job, "-it", "--", "sh", "-c", script),
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        seen = until(ours, b"tty\r\n")
        assert re.search(rb"/dev/pts/\d+\r\n600\r\n", seen), (
            "it has a name in the task, and is its user's alone"
        )
        assert b"50 132\r\ntmux-256color\r\n" in seen
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 61, 0, 0))
        ran.send_signal(signal.SIGWINCH)  # as the kernel does for the foreground of a terminal's own session
        until(ours, b"20 61\r\n")
        os.write(ours, b"\x03")  # Ctrl-C goes to the command, not to the client
        assert ran.wait(60) == 130
    finally:
        ran.kill()
        ran.wait()
        os.close(ours)


def until(terminal: int, end: bytes, timeout_s: float = 60.0) -> bytes:
    """What a terminal shows, up to its `end`."""
    seen, deadline = b"", time.monotonic() + timeout_s
    while end not in seen:
        assert select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0], seen
        seen += os.read(terminal, 65536)
    return seen


def test_exec_leaves_nothing_when_its_client_is_killed(stack: Stack, job: str) -> None:
    script = f"(trap '' HUP TERM; exec sleep {nap(86401)}) & setsid sleep {nap(86401)} & echo ready; wait"
    with subprocess.Popen(words(stack, job, "--", "sh", "-c", script), stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == b"ready\n"
        assert len(of_this(nap(86401))) >= 2
        ran.kill()
    wait_until("nothing is left", lambda: not of_this(nap(86401)))


def test_exec_ends_all_processes_of_its_command(stack: Stack, job: str) -> None:
    ran = run(stack, job, "--", "sh", "-c", f"setsid sleep {nap(86402)} & echo done")
    assert (ran.stdout, ran.returncode) == (b"done\n", 0)
    wait_until("nothing is left", lambda: not of_this(nap(86402)))


def test_a_command_ends_with_its_job(stack: Stack) -> None:
    with Client(stack.url) as client:
        id = client.submit({"name": "short", "command": "sleep 3600", "cpus": 0.1, "mem_mib": 32})["id"]
        wait_until("it runs", lambda: client.job(id)["state"] == "running")
        argv = words(stack, id, "--", "sh", "-c", f"echo ready; exec sleep {nap(86403)}")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
            assert ran.stdout is not None
            assert ran.stdout.readline() == b"ready\n"
            client.kill(id)
            assert ran.wait(60) != 0
        wait_until("it has ended", lambda: client.job(id)["ended_at"])
    assert not of_this(nap(86403))


def test_a_job_that_does_not_run_has_no_commands(stack: Stack) -> None:
    with Client(stack.url) as client:
        id = client.submit({"name": "big", "command": "true", "cpus": 900, "mem_mib": 32})["id"]
        ran = run(stack, id, "--", "true")
        client.kill(id)
    assert ran.returncode == 73
    assert b"has not been launched: a channel needs a running job" in ran.stderr


def test_exec_is_in_the_audit_log_when_it_opens_and_closes(stack: Stack, job: str) -> None:
    assert run(stack, job, "--", "sh", "-c", "echo 12345; exit 3").returncode == 3

    def records() -> list[dict[str, object]]:
        listed = json.loads(command("audit", "--url", stack.url, "--json").stdout)
        return [each for each in listed if "exec" in str(each["right"]) and f"job:{job}" in each["on"]]

    wait_until("the close is on record", lambda: str(records()[-1]["what"]).startswith("CLOSE"))
    opened = next(each for each in reversed(records()) if str(each["what"]).startswith("POST"))
    closed = records()[-1]
    assert opened["request_id"] == closed["request_id"]
    assert str(closed["detail"]).startswith("exit=3 ")
    assert "received=" in str(closed["detail"])


def test_command_that_ignores_sigterm_does_not_delay_the_end_of_its_job(stack: Stack) -> None:
    with Client(stack.url) as client:
        request = {
            "command": "sleep 3600; true",
            "gpus": 0,
            "cpus": 0.1,
            "mem_mib": 64,
            "kill_grace_s": 600.0,
        }
        id = client.submit(request)["id"]
        wait_until("it runs", lambda: client.job(id)["state"] == "running")
        script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
        with subprocess.Popen(words(stack, id, "--", "sh", "-c", script), stdout=subprocess.PIPE) as ran:
            assert ran.stdout is not None
            assert ran.stdout.readline() == b"up\n"
            client.kill(id)
            wait_until("it has ended", lambda: client.job(id)["ended_at"], 60)
            assert client.job(id)["exit_code"] == 143
            ran.communicate(timeout=60)
