"""Files of running jobs: listed, printed, brought here, taken there; as the job's user, and never half."""

import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
EVERY_BYTE = bytes(range(256))


@pytest.fixture(scope="module")
def job(stack: Stack) -> Iterator[str]:
    with Client(stack.url) as client:
        script = (
            "mkdir -p runs/1 && printf 'x=1' > runs/1/params && chmod 640 runs/1/params && ln -s 1 runs/latest &&"
            "ln -s /etc/shadow runs/shadow && mkfifo runs/pipe && echo ready; exec sleep 3600"
        )
        id = client.submit({"name": "files", "command": script, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(id)["state"] == "running")
        wait_until(
            "it is ready", lambda: "ready" in client.logs(id, stream="stdout", offset=0, length=99)["data"]
        )
        yield id
        client.kill(id)
        wait_until("it has ended", lambda: client.job(id)["ended_at"])


def run(
    stack: Stack, *words: str, data: bytes = b"", cwd: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return command(words[0], "--url", stack.url, *words[1:], data=data, cwd=cwd)


def test_cp_carries_a_directory_unchanged_both_ways(stack: Stack, job: str, tmp_path: Path) -> None:
    came = run(stack, "cp", f"{job}:runs", ".", cwd=tmp_path)
    assert came.returncode == 0, came.stderr
    assert (tmp_path / "runs/1/params").read_text() == "x=1"
    assert stat.S_IMODE((tmp_path / "runs/1/params").stat().st_mode) == 0o640
    assert os.readlink(tmp_path / "runs/latest") == "1"
    assert sorted(os.listdir(tmp_path / "runs")) == ["1", "latest"]
    assert b"skipped: " in came.stderr
    assert (
        f"{job}:runs/shadow: it is a link to /etc/shadow, outside of the copied tree".encode() in came.stderr
    )
    assert b"runs/pipe: it is neither a file nor a directory" in came.stderr

    (tmp_path / "runs/1/every").write_bytes(EVERY_BYTE * 10000)
    went = run(stack, "cp", str(tmp_path / "runs/1"), f"{job}:back")
    assert went.returncode == 0, went.stderr
    listed = run(stack, "ls", f"{job}:back", "--columns", "mode,size,name")
    assert listed.stdout.split() == b"MODE SIZE NAME -rw-r--r-- 2560000 every -rw-r----- 3 params".split()
    assert run(stack, "cat", f"{job}:back/every").stdout == EVERY_BYTE * 10000
    assert run(stack, "cp", f"{job}:back/every", "-").stdout == EVERY_BYTE * 10000


def test_cp_of_stdin_makes_a_file_of_the_jobs_user(stack: Stack, job: str) -> None:
    data = EVERY_BYTE * 4097
    assert run(stack, "cp", "-", f"{job}:given", data=data).returncode == 0
    ran = run(stack, "exec", job, "--", "sh", "-c", "sha256sum < given; stat -c %u given; id -u")
    digest, _, owner, user = ran.stdout.split()
    assert digest == hashlib.sha256(data).hexdigest().encode()
    assert owner == user


def test_files_that_are_denied_to_the_job_are_denied_to_cp(stack: Stack, job: str, tmp_path: Path) -> None:
    for path in ("/etc/shadow", "runs/shadow", "/root/.bashrc"):
        denied = run(stack, "cp", f"{job}:{path}", str(tmp_path))
        assert (denied.returncode, b"Permission denied" in denied.stderr) == (74, True), denied
    for path in ("/etc/passwd", "/usr/local", "runs/shadow/x"):
        assert run(stack, "cp", "-", f"{job}:{path}", data=b"root").returncode == 74
    (tmp_path / "way").mkdir()
    (tmp_path / "way/x").write_text("x")
    assert run(stack, "exec", job, "--", "sh", "-c", "mkdir -p in; ln -s /tmp in/way").returncode == 0
    through = run(stack, "cp", str(tmp_path / "way"), f"{job}:in")
    assert f"{job}:in: Not a directory".encode() in through.stderr
    assert b"in/way" in run(stack, "exec", job, "--", "sh", "-c", "ls -d in/way; ls /tmp/x").stdout


def test_cp_that_fails_names_the_cause_and_leaves_no_partial_file(
    stack: Stack, job: str, tmp_path: Path
) -> None:
    gone = run(stack, "cp", f"{job}:nothing", str(tmp_path / "new"))
    assert gone.returncode == 74
    assert b"nothing: No such file or directory" in gone.stderr
    assert os.listdir(tmp_path) == []
    assert b"is a directory" in run(stack, "cat", f"{job}:runs").stderr
    nowhere = run(stack, "cp", "-", f"{job}:no/dir/x", data=b"x" * 5_000_000)
    assert nowhere.returncode == 74
    assert b"there is no directory no/dir" in nowhere.stderr
    device = run(stack, "cp", "-", f"{job}:/dev/null", data=b"x")
    assert b"belongs to something that is not a file" in device.stderr
    local = run(stack, "cp", f"{job}:runs/1/params", "/dev/full")
    assert b"belongs to something that is not a file" in local.stderr
    assert run(stack, "cp", "a", "b").returncode == 2
    assert run(stack, "cp", "nobody-1:x", ".").returncode == 66


def test_files_of_an_ended_job_are_those_of_its_sandbox(stack: Stack, tmp_path: Path) -> None:
    """By a process in its sandbox, which is sealed: links stay links, and nothing of what they lead to is told."""
    script = (
        "mkdir -p out/d && echo kept > out/d/kept && chmod 600 out/d/kept;"
        "printf '\\377' > \"out/$(printf 'a\\377b')\";"
        "ln -s /etc out/etc; ln -s /etc/shadow out/shadow; ln -s /dev/zero out/zero; ln -s .. out/up; ln -s . out/loop;"
        "ln -s d out/same; mkfifo out/pipe; head -c 3000000 /dev/zero > out/zeros"
    )
    with Client(stack.url) as client:
        id = client.submit({"name": "left", "command": script, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it has ended", lambda: client.job(id)["ended_at"])
        assert client.job(id)["state"] == "finished"
    got = run(stack, "cp", f"{id}:out", str(tmp_path))
    assert got.returncode == 0, got.stderr
    out = tmp_path / "out"
    assert sorted(os.listdir(os.fsencode(out))) == [b"a\xffb", b"d", b"loop", b"same", b"zeros"]
    assert (os.readlink(out / "same"), os.readlink(out / "loop")) == ("d", ".")
    assert (out / "d/kept").read_text() == "kept\n"
    assert stat.S_IMODE((out / "d/kept").stat().st_mode) == 0o600
    assert (out / "zeros").stat().st_size == 3_000_000
    left = dict(line.split(f"{id}:out/")[1].split(": ", 1) for line in got.stderr.decode().splitlines())
    assert left == {
        "etc": "it is a link to /etc, outside of the copied tree",
        "shadow": "it is a link to /etc/shadow, outside of the copied tree",
        "zero": "it is a link to /dev/zero, outside of the copied tree",
        "up": "it is a link to .., outside of the copied tree",
        "pipe": "it is neither a file nor a directory",
    }
    listed = run(stack, "ls", f"{id}:out", "-q")
    names = b"a\\xffb d etc loop pipe same shadow up zero zeros"
    assert listed.stdout.split() == names.split()
    assert run(stack, "cat", f"{id}:out/d/kept").stdout == b"kept\n"
    assert b"stdout" in run(stack, "ls", id).stdout
    for path in ("out/shadow", "out/etc/passwd", "out/nothing", "out/pipe", "out/same/kept"):
        refused = run(stack, "cat", f"{id}:{path}")
        assert (refused.returncode, refused.stdout) == (66, b""), path
    for path in ("/etc/passwd", "../x", "out/../../x"):
        assert b"must be in the sandbox" in run(stack, "cat", f"{id}:{path}").stderr
    assert b"a channel needs a running job" in run(stack, "cp", "-", f"{id}:x", data=b"x").stderr


@pytest.mark.long
def test_cp_carries_a_gibibyte_unchanged_both_ways(stack: Stack, job: str, tmp_path: Path) -> None:
    block = os.urandom(1 << 20)
    with open(tmp_path / "big", "wb") as file:
        for number in range(1024):
            file.write(number.to_bytes(4) + block[4:])
    began = time.monotonic()
    assert run(stack, "cp", str(tmp_path / "big"), f"{job}:big").returncode == 0
    went = time.monotonic()
    assert run(stack, "cp", f"{job}:big", str(tmp_path / "back")).returncode == 0
    came = time.monotonic()
    print(f"1 GiB: to the job {1024 / (went - began):.0f} MiB/s, from it {1024 / (came - went):.0f} MiB/s")
    there = run(stack, "exec", job, "--", "sh", "-c", "sha256sum < big; rm big").stdout.split()[0].decode()
    assert {digest(tmp_path / "big"), digest(tmp_path / "back")} == {there}


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
