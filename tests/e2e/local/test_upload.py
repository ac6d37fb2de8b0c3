"""`mesos-gpu run --upload` on real Mesos: the directory comes along, is the task's user's, and is sent once."""

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from mesos_gpu.local.stack import Stack
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "data.bin").write_bytes(bytes(range(256)) * 6000)
    (tmp_path / "train.sh").write_text("#!/bin/sh\necho I am $(id -un) in $PWD\nsha256sum < pkg/data.bin\n")
    (tmp_path / "train.sh").chmod(0o755)
    (tmp_path / "debug.log").write_text("not needed")
    (tmp_path / ".gitignore").write_text("*.log\n")
    return tmp_path


def mesos_gpu(stack: Stack, cwd: Path, *words: str, data: str = "") -> "subprocess.CompletedProcess[str]":
    ran = command("--url", stack.url, *words, data=data.encode(), cwd=cwd)
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


SMALL = ("--cpus", "0.1", "--mem", "64")


def test_upload_brings_the_directory_and_gives_it_to_the_user_of_the_task(stack: Stack, code: Path) -> None:
    (code / "new.txt").write_text("sent by nobody else")
    script = "./train.sh; ls -A pkg; find . -path ./containers -prune -o -user root ! -name '.*mesos-gpu-times*' -print"
    done = mesos_gpu(stack, code, "run", "--upload", *SMALL, "--shell", "--", script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    digest = subprocess.run(
        ["sha256sum"], input=bytes(range(256)) * 6000, capture_output=True, check=True
    ).stdout
    own = {".", "./stdout", "./stderr", "./executor.log"} if os.geteuid() == 0 else set()
    assert lines[0].startswith("I am nobody in /"), "HOME and the directory are the sandbox"
    assert lines[1:3] == [digest.decode().strip(), "data.bin"]
    assert {*lines[3:]} == own, "debug.log was left out, and the rest is the task's user's"
    assert "4 files" in done.stderr
    assert "sent" in done.stderr
    again = mesos_gpu(stack, code, "run", "--upload", ".", *SMALL, "--", "./train.sh")
    assert again.returncode == 0, again.stderr
    assert "already on the scheduler" in again.stderr


def test_upload_reaches_each_task_of_a_gang(stack: Stack, code: Path) -> None:
    done = mesos_gpu(stack, code, "run", "--upload", *SMALL, "--tasks", "2", "--", "./train.sh")
    assert done.returncode == 0, done.stderr


def test_workdir_of_a_job_file_is_relative_to_the_file(
    stack: Stack, code: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = code / "job.yaml"
    job.write_text("workdir: .\nargv: [./train.sh]\ncpus: 0.1\nmem_mib: 64\nname: filed\n")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = mesos_gpu(stack, elsewhere, "submit", str(job))
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    waited = mesos_gpu(stack, elsewhere, "wait", job_id)
    assert waited.returncode == 0, waited.stderr
    assert "I am nobody" in mesos_gpu(stack, elsewhere, "logs", job_id).stdout
    shown = mesos_gpu(stack, elsewhere, "show", job_id).stdout
    assert "sha256:" in shown


def test_upload_of_an_app_reaches_its_instances_and_is_kept_for_later_ones(stack: Stack, code: Path) -> None:
    (code / "serve.sh").write_text("cat pkg/word; exec sleep 3600\n")
    (code / "pkg" / "word").write_text("served\n")
    app = code / "app.yaml"
    app.write_text("id: /web\ncmd: sh serve.sh\nworkdir: .\ncpus: 0.1\nmem: 32\n")
    made = mesos_gpu(stack, code, "app", "create", "--wait", str(app))
    assert made.returncode == 0, made.stderr
    wait_until(
        "it says so", lambda: mesos_gpu(stack, code, "logs", "/web", "--stdout").stdout.endswith("served\n")
    )
    same = mesos_gpu(stack, code, "diff", str(app))
    assert (same.returncode, same.stdout) == (0, ""), same.stdout + same.stderr
    mesos_gpu(stack, code, "app", "scale", "--wait", "/web", "0")
    kept = json.loads(mesos_gpu(stack, code, "uploads", "list", "--json").stdout)
    (digest,) = [each["sha256"] for each in kept if each["jobs"] == ["/web"]]
    refused = mesos_gpu(stack, code, "uploads", "rm", digest)
    assert (refused.returncode, "need" in refused.stderr) == (73, True)
    (code / "pkg" / "word").write_text("changed\n")
    other = mesos_gpu(stack, code, "diff", str(app))
    assert (other.returncode, "upload" in other.stdout) == (1, True)
    assert mesos_gpu(stack, code, "app", "delete", "--wait", "/web").returncode == 0
    assert mesos_gpu(stack, code, "uploads", "rm", digest).returncode == 0
    gone = mesos_gpu(
        stack,
        code,
        "app",
        "create",
        "-",
        data=json.dumps({"id": "/web", "cmd": "true", "gpu": {"upload": f"sha256:{digest}"}}),
    )
    assert gone.returncode == 65
    assert "/web/gpu/upload: there is no archive" in gone.stderr


def test_run_of_a_local_file_without_upload_names_both_remedies(stack: Stack, code: Path) -> None:
    done = mesos_gpu(stack, code, "run", *SMALL, "--", "./train.sh")
    assert done.returncode == 127
    for way in ("--upload", "--volume"):
        assert way in done.stderr


@pytest.mark.long
def test_upload_of_the_largest_size_arrives_unchanged(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """511 MiB that do not get smaller, sent, kept, fetched and extracted; what is one MiB more is refused."""
    sums, data = hashlib.sha256(), os.urandom(1 << 20)
    with (tmp_path / "data").open("wb") as file:
        for i in range(511):
            piece = hashlib.sha256(b"%d" % i).digest() + data[32:]
            sums.update(piece)
            file.write(piece)
    process = psutil.Process(stack.scheduler.pid)
    before, began = process.memory_info().rss, time.monotonic()
    done = mesos_gpu(stack, tmp_path, "run", "--upload", *SMALL, "--", "sha256sum", "data")
    took_s, grown = time.monotonic() - began, process.memory_info().rss - before
    assert (done.returncode, done.stdout) == (0, f"{sums.hexdigest()}  data\n"), done.stderr
    began = time.monotonic()
    again = mesos_gpu(stack, tmp_path, "run", "--upload", *SMALL, "--", "true")
    assert "already on the scheduler" in again.stderr
    with capsys.disabled():
        print(
            f"\n511 MiB: {took_s:.1f} s from --upload to its digest there, {time.monotonic() - began:.1f} s again; "
            f"the scheduler has {grown / 2**20:.0f} MiB more"
        )
    assert grown < 100 << 20, "an archive is not in the scheduler's memory"
    (tmp_path / "more").write_bytes(os.urandom(2 << 20))
    refused = mesos_gpu(stack, tmp_path, "run", "--upload", *SMALL, "--", "true")
    assert refused.returncode == 65, refused.stderr
    assert "more than 512.0 MiB" in refused.stderr
