"""A small disk of the state filled with archives of several users: other users can still launch and kill."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bcrypt
import pytest
import requests
import yaml

from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root"),
]
FILLERS, VICTIM, WORD = ("mal", "mallory", "malachi"), "nobody", "a password of the test"
SIZE_MIB, RESERVE_MIB = 48, 16
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def small(open_directory: Path) -> Iterator[Path]:
    """A file system that is smaller than the limit of one user's archives."""
    at = open_directory / "small"
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(at)], check=True)
    yield at
    subprocess.run(["umount", str(at)], check=True)
    at.rmdir()


@pytest.fixture(scope="module")
def stack(open_directory: Path, small: Path) -> Iterator[Stack]:
    passwords, access = open_directory / "htpasswd", open_directory / "access.yaml"
    hashed = bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(4)).decode()
    passwords.touch(0o600)
    passwords.write_text("".join(f"{name}:{hashed}\n" for name in (*FILLERS, VICTIM)))
    access.write_text(yaml.safe_dump({"bindings": [{"names": [*FILLERS, VICTIM], "roles": ["user"]}]}))
    more = [
        "--state", str(small / "scheduler" / "state.sqlite"), "--journal", str(small / "scheduler" / "journal"),
        "--disk-reserve", str(RESERVE_MIB), "--rate", "10000",
        "--htpasswd", str(passwords), "--access-file", str(access),
    ]  # fmt: skip
    with Stack(open_directory / "stack", [NodeSpec(1)], scheduler_arguments=more) as running:
        yield running


def call(stack: Stack, who: str, verb: str, path: str, **more: object) -> requests.Response:
    return requests.request(verb, stack.url + path, auth=(who, WORD), timeout=60, **more)  # type: ignore[arg-type]


def fill(stack: Stack, who: str) -> requests.Response:
    """Send archives and parts until a user has no room left; return the first refusal."""
    for number in range(100):
        data = hashlib.shake_256(f"{who} {number}".encode()).digest(1 << 20)
        digest = hashlib.sha256(data).hexdigest()
        piece = data if number % 2 else data[:-1]
        path = f"/v1/uploads/{digest}?offset=0&size={len(data)}"
        answer = call(stack, who, "PUT", path, data=piece, headers=BYTES)
        if answer.status_code != 200:
            return answer
    raise AssertionError(f"{who} filled the disk")


def is_in(stack: Stack, job: str, state: str) -> bool:
    return bool(call(stack, VICTIM, "GET", f"/v1/jobs/{job}").json()["state"] == state)


def test_uploads_that_fill_the_disk_prevent_no_launch_and_no_kill(stack: Stack, small: Path) -> None:
    wait_until("the node reports", lambda: call(stack, VICTIM, "GET", "/v1/gpus").json().get("gpus"), 60)
    lasts = {"name": "lasts", "command": "sleep 600", "cpus": 0.1, "mem_mib": 32, "user": VICTIM}
    first = call(stack, VICTIM, "POST", "/v1/jobs", json=lasts).json()["id"]
    wait_until("it runs", partial(is_in, stack, first, "running"), 60)
    refusals = [fill(stack, who) for who in FILLERS]
    assert {each.status_code for each in refusals} == {507}
    told = refusals[-1].json()["error"]
    assert "size=1048576: " in told["message"]
    assert f"{RESERVE_MIB} MiB are kept for the scheduler's state" in told["message"]
    assert "--uploads-dir" in told["remedy"]
    free = os.statvfs(small)
    assert free.f_bavail * free.f_frsize >= (RESERVE_MIB - 1) << 20, (
        "records and the state take some, archives none"
    )

    assert call(stack, VICTIM, "DELETE", f"/v1/jobs/{first}").status_code == 202
    second = call(stack, VICTIM, "POST", "/v1/jobs", json={**lasts, "name": "second", "command": "true"})
    assert second.status_code == 201, second.text
    for job, state in ((first, "killed"), (second.json()["id"], "finished")):
        wait_until(f"{job} is {state}", partial(is_in, stack, job, state), 60)
    health = call(stack, VICTIM, "GET", "/v1/health").json()
    assert (health["ok"], health["saves"]) == (True, True)
