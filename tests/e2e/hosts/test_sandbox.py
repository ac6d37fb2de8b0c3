"""What a job does to its output and its disk on a real Mesos, and what others notice of it."""

import os
import re
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, Refused, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.jobs.permits import Root
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the jobs run as another user"),
]
READERS = 40  # more than an agent has threads


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(
        open_directory / "stack",
        [NodeSpec(1)],
        scheduler_arguments=["--log-limit", "1"],
        allow_root=Root.HOST,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        client.patience_s = 30
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        yield client


def submit(client: Client, command: str, **fields: object) -> Job:
    return client.submit({"name": "t", "command": command, "cpus": 0.1, "mem_mib": 32, **fields})


def end_of(client: Client, job: Job) -> Job:
    wait_until(f"the end of {job['id']}", lambda: ended(client.job(job["id"])), 60)
    return client.job(job["id"])


def said(client: Client, job: Job) -> str:
    return client.logs(job["id"], stream="stdout", offset=0, length=100_000)["data"]


def running(client: Client, job: Job) -> None:
    wait_until(f"{job['id']} runs", lambda: client.job(job["id"])["state"] == "running", 60)


REPLACES = "rm -f stdout; mkfifo f; mv -f f stdout; ls -l stdout | cut -c1 > kind; touch done; exec sleep 600"


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_fifo_in_place_of_the_output_blocks_no_reader_of_logs(stack: Stack, user: str) -> None:
    """An agent that opens one waits for ever, with one of its few threads for each who asks."""
    with Client(stack.url) as client:
        client.patience_s = 30
        bad = submit(client, REPLACES, user=user)
        running(client, bad)
        runs = stack.directory.rglob(f"executors/{client.job(bad['id'])['task_id']}/runs/latest")
        sandbox = next(path for path in runs if "meta" not in path.parts)
        wait_until("it has done its worst", lambda: (sandbox / "done").exists(), 60)
        # Of root nothing is kept off: what it does is put right (LOOK_S).
        wait_until("its name is put right", lambda: not (sandbox / "stdout").is_fifo())

        def read(_: int) -> str:
            with Client(stack.url) as reader:
                try:
                    return reader.logs(bad["id"], stream="stdout", offset=0, length=1000)["data"]
                except Refused as error:
                    return f"refused: {error.what}"

        with ThreadPoolExecutor(READERS) as pool:
            texts = set(pool.map(read, range(READERS)))
        assert not any("refused" in text for text in texts), texts
        good = end_of(client, submit(client, "echo heard"))
        assert said(client, good) == "heard\n"
        client.kill(bad["id"])
        end_of(client, bad)


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_link_of_an_archive_is_not_followed_by_root(client: Client, open_directory: Path, user: str) -> None:
    """A gang's list of hosts is written after what was fetched is there."""
    victim, archive = open_directory / f"victim-{user}", open_directory / f"{user}.tar"
    victim.write_text("the host's\n")
    victim.chmod(0o600)
    link = tarfile.TarInfo("hostfile")
    link.type, link.linkname = tarfile.SYMTYPE, str(victim)
    with tarfile.open(archive, "w") as tar:
        tar.addfile(link)
    archive.chmod(0o644)
    gang = submit(client, "cat $HOSTFILE", tasks=2, user=user, fetch=[f"file://{archive}"], mem_mib=32)
    job = end_of(client, gang)
    assert (job["state"], victim.read_text()) == ("finished", "the host's\n"), job["message"]
    assert said(client, job).count("slots=1") == 2


def printed(stack: Stack, *words: str) -> str:
    ran = command("--url", stack.url, *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


def test_log_that_was_truncated_is_read_on(stack: Stack, client: Client) -> None:
    script = "i=0; while [ $i -lt 30 ]; do seq $((i*20000)) $((i*20000+19999)); i=$((i+1)); sleep 0.05; done"
    job = end_of(client, submit(client, script))
    assert job["state"] == "finished", job["message"]
    first, *lines = printed(stack, "logs", job["id"]).splitlines()
    assert "bytes of this log were cut off here: it may keep 1 MiB" in first
    assert lines == [str(number) for number in range(600_000 - len(lines), 600_000)]
    assert 400_000 < sum(map(len, lines)) < 2_000_000
    assert printed(stack, "logs", "-n", "2", job["id"]) == "599998\n599999\n"


def test_logs_follow_to_the_end_over_truncations(client: Client, stack: Stack) -> None:
    script = "i=0; while [ $i -lt 20 ]; do seq 30000; i=$((i+1)); sleep 0.1; done; echo the end"
    job = submit(client, script)
    done = command("--url", stack.url, "logs", "-f", job["id"]).stdout.decode()
    assert done.endswith("29999\n30000\nthe end\n")
    assert "\0" not in done


def test_out_of_disk_message_names_both_sizes(client: Client) -> None:
    job = end_of(client, submit(client, "head -c 9000000 /dev/zero > x; exec sleep 600", disk_mib=4))
    assert job["state"] == "failed"
    assert job["message"].startswith("out of disk: 4 MiB asked, 9 used in its sandbox")


HUNGRY = "{python} -c 'x = b\"x\" * (300 << 20); import time; time.sleep(600)'"


@pytest.mark.parametrize("shell", ["", "; exit $?"], ids=["itself", "a shell's child"])
def test_out_of_memory_message_is_one_line(client: Client, shell: str) -> None:
    if "memory" not in Path("/proc/self/cgroup").read_text():
        pytest.skip("needs cgroups that limit memory (v1): Mesos 1.11 uses no others")
    job = end_of(client, submit(client, HUNGRY.format(python="/usr/bin/python3") + shell, mem_mib=64))
    assert job["state"] == "failed"
    assert re.fullmatch(r"out of memory: 64 MiB asked, \d+ used; ask for more with --mem", job["message"])
    assert job["exit_code"] == 137
