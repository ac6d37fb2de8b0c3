"""Jobs with a stdin or a terminal of one's own, gangs, notebooks, and commands that stay with a job."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.clients import command
from tests.conftest import wait_until
from tests.e2e.channel.test_exec import EVERY_BYTE, nap, of_this, until

pytestmark = [pytest.mark.cluster]
SMALL = ("--cpus", "0.1", "--mem", "64MiB")


def words(stack: Stack, command: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "mesos_gpu", command, "--url", stack.url, *more]


def state_of(stack: Stack, name: str) -> tuple[str, int | None]:
    with Client(stack.url) as client:
        [job] = [each for each in client.jobs() if each["name"] == name]
        return job["state"], job["exit_code"]


def test_run_with_stdin_carries_every_byte_in_and_out(stack: Stack) -> None:
    data = EVERY_BYTE * 4096
    script = "cat; echo err >&2; exit 7"
    options = ("--name", "bytes", *SMALL, "-i", "--shell")
    ran = command("run", "--url", stack.url, *options, "--", script, data=data)
    assert (ran.stdout == data, ran.stderr, ran.returncode) == (True, b"err\n", 7)
    wait_until("the job has its code", lambda: state_of(stack, "bytes") == ("failed", 7))


@contextlib.contextmanager
def killed_at_end(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """Nobody waits for a process whose test has failed."""
    try:
        yield
    finally:
        process.kill()


@contextlib.contextmanager
def terminal(argv: list[str]) -> "Iterator[tuple[int, subprocess.Popen[bytes]]]":
    """A command in a terminal of its own, and the other end of that."""
    ours, theirs = pty.openpty()
    ran = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        yield ours, ran
    finally:
        ran.kill()
        ran.wait()
        os.close(ours)


def test_run_with_a_terminal_ends_with_its_shell(stack: Stack) -> None:
    argv = words(stack, "run", "--name", "shell", "--gpus", "1", *SMALL, "-it", "--", "sh")
    with terminal(argv) as (keys, ran):
        seen = until(keys, b"$ ")
        assert b"its output is shown here, not stored in its logs" in seen
        assert seen.endswith((b"\n$ ", b"\r\x1b[K$ ")), "the prompt begins in the first column"
        os.write(
            keys,
            f"test -t 0 && tty && echo cards: $(ls /dev | grep -c 'nvidia[0-9]'); sleep {nap(86410)}\n".encode(),
        )
        assert re.search(rb"\n/dev/pts/\d+\r\n", until(keys, b"cards: 1\r\n"))
        wait_until("it sleeps", lambda: of_this(nap(86410)))
        os.write(keys, b"\x03")  # of the sleep, not of the shell, the job or the client
        wait_until("it sleeps no more", lambda: not of_this(nap(86410)))
        os.write(keys, b"exit 5\n")
        assert ran.wait(60) == 5
    wait_until("the job has its code", lambda: state_of(stack, "shell") == ("failed", 5))
    printed = command("logs", "--url", stack.url, "shell")
    assert (printed.returncode, printed.stdout) == (0, b""), printed
    assert b"was run with -i or -t: its output went to the user" in printed.stderr


def test_a_job_whose_client_is_killed_ends_and_leaves_nothing(stack: Stack) -> None:
    argv = words(
        stack, "run", "--name", "lost", *SMALL, "-i", "--shell", "--", f"echo ready; exec sleep {nap(86411)}"
    )
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ran, killed_at_end(ran):
        assert ran.stdout is not None
        assert ran.stdout.readline() == b"ready\n"
        assert of_this(nap(86411))
        ran.kill()
    wait_until("the job has ended", lambda: state_of(stack, "lost") == ("failed", 129))
    assert not of_this(nap(86411))


def test_gang_has_commands_by_rank_and_is_attached_to(stack: Stack) -> None:
    with Client(stack.url) as client:
        asked = {"name": "gang", "command": "echo rank $RANK; read x < go || sleep 3600", "tasks": 2}
        gang = client.submit({**asked, "gpus": 2, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(gang)["state"] == "running")
        nodes = {task["rank"]: task["hostname"] for task in client.tasks(gang)}
        assert nodes[0] != nodes[1]
        for rank in (0, 1):
            script = ("--", "sh", "-c", "echo $RANK $HOST")
            ran = command("exec", "--url", stack.url, gang, "--rank", str(rank), *script)
            assert ran.stdout.decode().split()[0] == str(rank), ran
        argv = words(stack, "attach", gang)
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as stays, killed_at_end(stays):
            assert stays.stdout is not None
            said = {stays.stdout.readline() for _ in range(2)}
            assert said == {"[0] rank 0\n", "[1] rank 1\n"}
            stays.send_signal(signal.SIGINT)
            assert stays.wait(60) == 130
        assert client.job(gang)["state"] == "running"
        client.kill(gang)
        wait_until("it has ended", lambda: client.job(gang)["ended_at"])


def test_a_command_in_a_share_has_its_card_and_limits_and_gets_no_other(stack: Stack) -> None:
    limits = "env | grep -E '^(CUDA|NVIDIA|LD_|MESOS_GPU)' | sort; ls /dev | grep nvidia"
    with Client(stack.url) as client:
        asked = {"name": "share", "command": f"({limits}) > limits; exec sleep 3600", "gpus": 0.25}
        share = client.submit({**asked, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(share)["state"] == "running")

    def run(script: str) -> str:
        return command("exec", "--url", stack.url, share, "--", "sh", "-c", script).stdout.decode()

    own = wait_until("its own limits", lambda: run("cat limits"))
    of_command = [each for each in run(limits).splitlines() if not each.startswith("MESOS_GPU_CHANNEL=")]
    assert of_command == own.splitlines()
    assert len([each for each in of_command if re.fullmatch(r"nvidia\d+", each)]) == 1
    other = "mknod card c 195 1 2>&1 || mknod /dev/nvidia9 c 195 1 2>&1 || echo none; cat /proc/1/environ; echo end"
    assert run(other).splitlines()[-2:] == ["none", "end"]
    with Client(stack.url) as client:
        client.kill(share)
        wait_until("it has ended", lambda: client.job(share)["ended_at"])


def test_a_notebook_is_reached_by_the_url_that_is_printed(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "first.ipynb").write_text("{}")
    serve = 'echo $JUPYTER_TOKEN > token; exec python3 -m http.server --bind 127.0.0.1 "$PORT0"'
    argv = words(stack, "notebook", "--upload", str(tmp_path), *SMALL, "--shell", "--", serve)
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran,
        killed_at_end(ran),
    ):
        assert ran.stdout is not None
        assert ran.stderr is not None
        url = ran.stdout.readline()
        match = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=([\w-]{32})\n", url)
        assert match, url
        with urllib.request.urlopen(f"{match[1]}token", timeout=60) as answer:
            assert answer.read().decode().strip() == match[2]
        with urllib.request.urlopen(f"{match[1]}first.ipynb", timeout=60) as answer:
            assert answer.read() == b"{}", "what came along is there"
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == 143
        assert "is not Jupyter: it answers 404" in ran.stderr.read()
    wait_until("the job is killed", lambda: state_of(stack, "notebook")[0] == "killed")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-d", "-i"), "-d excludes -i and -t"),
        (("-i", "--tasks", "2"), "--rank N -it"),
        (("-it",), "-t needs a terminal"),
    ],
)
def test_run_with_impossible_options_for_a_session_submits_nothing(
    stack: Stack, more: tuple[str, ...], said: str
) -> None:
    ran = command("run", "--url", stack.url, "--name", "none", *more, "--", "true")
    assert (ran.returncode, said in ran.stderr.decode()) == (2, True), ran.stderr
    with Client(stack.url) as client:
        assert not [each for each in client.jobs() if each["name"] == "none"]
