"""A state that is old, torn or empty: refused, and what runs is left running, whatever an operator says then."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.cli.jobs.resize import ask_resize
from mesos_gpu.engine.gpus import covers
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, kill_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    # Nobody listens on port 1 there: what is sent to it waits.
    to = ["--webhook-to", "127.0.0.1:1"]
    with Stack(open_directory / "stack", [NodeSpec(4)], scheduler_arguments=to) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 4) as client:
        yield client
        wait_until("all is over", partial(is_over, stack, client))


def is_over(stack: Stack, client: Client) -> bool:
    """Whether nothing runs. What does is told to end: Mesos names what an older state does not know a while later."""
    for task in OperatorCalls(client).unknown_tasks():
        if not task["kill_requested"]:
            with suppress(Refused):  # it may have ended by itself
                OperatorCalls(client).kill_unknown(task["id"])
    kill_all(client)
    return (
        not OperatorCalls(client).unknown_tasks()
        and not client.jobs(states=["active"])
        and not mesos_says(stack)
    )


def state_of(stack: Stack) -> Path:
    return stack.directory / "scheduler" / "state.sqlite"


def start_job(client: Client, name: str) -> str:
    request = {"name": name, "command": "sleep 600", "gpus": 1, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1,
               "env": {"TOKEN": "hunter2"}}  # fmt: skip
    job = client.submit(request)["id"]
    wait_until(f"{name} runs", lambda: client.job(job)["state"] == "running", 60)
    return job


def mesos_says(stack: Stack) -> dict[str, str]:
    """The state of every task of a job that Mesos has not seen the end of."""
    (framework,) = stack.cluster.master.state()["frameworks"]
    return {
        task["id"]: task["state"]
        for task in framework["tasks"]
        if not task["id"].startswith("gpu-monitor") and covers.card_of(task["id"]) is None
    }


def call(stack: Stack, *words: str) -> Any:
    return CliRunner().invoke(main, ["--url", stack.url, *words])


def lose_the_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def tear_the_wal(path: Path) -> None:
    wal = Path(f"{path}-wal")
    with wal.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(50_000))


def empty_it(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [lose_the_wal, tear_the_wal, empty_it], ids=lambda f: f.__name__)
def test_old_state_is_refused_and_no_task_is_killed(
    stack: Stack, client: Client, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    job = start_job(client, "precious")
    running = mesos_says(stack)
    stack.scheduler.kill()
    state = state_of(stack)
    saved = {path: path.read_bytes() for path in state.parent.glob("state.sqlite*") if path.is_file()}
    harm(state)

    stack.scheduler.start()
    wait_until("it ends", lambda: not stack.scheduler.running, 60)
    assert stack.scheduler.exit_code == 78
    words = stack.scheduler.tail()
    for word in (str(state), "older", "-wal", "--accept-older-state"):
        assert word in words
    assert mesos_says(stack) == running

    stack.scheduler.start("--accept-older-state").wait()
    wait_until("it is held or its job's", partial(settled, client, f"{job}.1"), 60)
    # Jobs of other tests that had not ended by the older state may start again.
    assert running.items() <= mesos_says(stack).items()
    if any(task["id"] == f"{job}.1" for task in OperatorCalls(client).unknown_tasks()):
        assert call(stack, "tasks", "unknown", "adopt", f"{job}.1").exit_code == 0
    assert client.job(job)["state"] == "running"
    wait_until("its card is shown as its", lambda: job in [gpu["job_id"] for gpu in client.gpus()], 60)
    assert running.items() <= mesos_says(stack).items()
    client.kill(job)
    wait_until("it ends", lambda: client.job(job)["state"] == "killed", 60)

    stack.scheduler.kill()
    for path, body in saved.items():
        path.write_bytes(body) if not path.name.endswith((".mark", "-shm")) else None
    stack.scheduler.start()
    wait_until("the file that was the newest once is refused, too", lambda: not stack.scheduler.running, 60)
    assert stack.scheduler.exit_code == 78
    stack.scheduler.start("--accept-older-state").wait()


def test_a_share_that_was_resized_is_taken_up_with_what_it_has(stack: Stack, client: Client) -> None:
    wanted = {
        "name": "part",
        "command": "sleep 600",
        "gpus": 0.25,
        "cpus": 0.1,
        "mem_mib": 32,
        "isolation": "any",
    }
    part = client.submit({**wanted, "kill_grace_s": 0.1})["id"]
    wait_until("it runs", lambda: client.job(part)["state"] == "running", 60)
    ask_resize(client, part, {"gpu_memory_mib": 30720, "gpu_compute_pct": 45})
    assert memory_of(client, part) == 30720
    stack.scheduler.kill()
    empty_it(state_of(stack))
    stack.scheduler.start("--accept-older-state").wait()
    wait_until("it is held", partial(settled, client, f"{part}.1"), 60)
    assert call(stack, "tasks", "unknown", "adopt", f"{part}.1").exit_code == 0
    wait_until("its executor has said what it has", lambda: memory_of(client, part) == 30720, 60)
    job = client.job(part)
    asked = [job[name] for name in ("gpus", "gpu_compute_pct", "gpu_memory_mib", "isolation")]
    assert (job["state"], asked) == ("running", [0.25, 45, 30720, "any"])
    ask_resize(client, part, {"gpu_memory_mib": 10240})
    assert memory_of(client, part) == 10240


def memory_of(client: Client, job: str) -> int | None:
    share = client.job(job)["share"]
    return share["memory_mib"] if share else None


def waiting(client: Client) -> dict[str, int]:
    return {hook["name"]: hook["waiting"] for hook in client.get("/v1/webhooks", dict)["webhooks"]}


def settled(client: Client, task_id: str) -> bool:
    """Whether the task is held and described, or its job has it."""
    if any(task["id"] == task_id and task["adoptable"] for task in OperatorCalls(client).unknown_tasks()):
        return True
    return (
        any(task["id"] == task_id for task in client.get("/v1/tasks", dict)["tasks"])
        and not OperatorCalls(client).unknown_tasks()
    )


def back_up(stack: Stack, copy: Path) -> None:
    """Copy the state; nobody else may read that, and it is not written over."""
    done = call(stack, "backup", str(copy), "--state", str(state_of(stack)))
    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE(hooks_of(copy).stat().st_mode) == 0o600
    assert call(stack, "backup", str(copy), "--state", str(state_of(stack))).exit_code == 73


def bring_back(stack: Stack, copy: Path) -> None:
    """Put a backup in the place of the state, as the runbook says."""
    done = call(stack, "restore", str(copy), "--state", str(state_of(stack)))
    assert done.exit_code == 0, done.output


def test_a_backup_is_brought_back_and_tasks_run_on(stack: Stack, client: Client, tmp_path: Path) -> None:
    """A job was there at the backup, of another the backup knows only that it waits, and of a third it knows
    nothing."""
    url = ("http://127.0.0.1:1/", "--event", "submitted")
    for name in ("kept", "removed"):
        assert call(stack, "webhook", "add", name, *url).exit_code == 0
    before = start_job(client, "before")
    request = {
        "name": "waits",
        "command": "sleep 600",
        "gpus": 4,
        "cpus": 0.1,
        "mem_mib": 32,
        "kill_grace_s": 0.1,
    }
    waits = client.submit(request)["id"]
    wait_until("it is queued", lambda: client.job(waits)["state"] == "pending")
    copy = tmp_path / "backup.sqlite"
    back_up(stack, copy)

    assert call(stack, "webhook", "remove", "removed").exit_code == 0
    client.kill(before)
    wait_until("it runs now", lambda: client.job(waits)["state"] == "running", 60)
    client.kill(waits)
    wait_until("it ends", lambda: client.job(waits)["state"] == "killed", 60)
    after = start_job(client, "after")
    running = mesos_says(stack)
    assert set(running) == {f"{after}.1"}

    refused = call(stack, "restore", str(copy), "--state", str(state_of(stack)))
    assert (refused.exit_code, "another scheduler uses the state" in refused.output) == (73, True)
    stack.scheduler.kill()
    bring_back(stack, copy)
    stack.scheduler.start().wait()

    wait_until(
        "it is held",
        lambda: [t["id"] for t in OperatorCalls(client).unknown_tasks() if t["adoptable"]] == [f"{after}.1"],
        60,
    )
    assert mesos_says(stack)[f"{after}.1"] == "TASK_RUNNING"
    wait_until("the webhook that was not removed has what waited", lambda: waiting(client) == {"kept": 2})
    assert call(stack, "webhook", "remove", "kept").exit_code == 0
    shown = call(stack, "tasks", "unknown", "list").output
    assert f"{after}.1" in shown
    assert "1 task runs that the scheduler's state does not know" in call(stack, "status").output
    wait_until(
        "its card is held by it, and reported well",
        lambda: [g["health"] for g in client.gpus() if g["task_id"] == f"{after}.1"] == ["ok"],
    )

    stack.scheduler.kill()  # what is held is saved
    stack.scheduler.start().wait()
    assert [task["id"] for task in OperatorCalls(client).unknown_tasks()] == [f"{after}.1"]
    assert call(stack, "tasks", "unknown", "kill", "--all").exit_code == 0
    wait_until("it ends", lambda: f"{after}.1" not in mesos_says(stack), 60)
    wait_until("it is forgotten", lambda: not OperatorCalls(client).unknown_tasks(), 60)


def test_a_state_that_was_cut_off_is_refused_and_a_backup_of_it_brings_it_back(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    job = start_job(client, "precious")
    copy, state = tmp_path / "backup.sqlite", state_of(stack)
    back_up(stack, copy)
    running = mesos_says(stack)
    stack.scheduler.end()  # so that nothing of it is in its -wal
    os.truncate(state, state.stat().st_size // 2)
    cut = state.read_bytes()

    stack.scheduler.start()
    wait_until("it ends", lambda: not stack.scheduler.running, 60)
    assert stack.scheduler.exit_code == 65, stack.scheduler.tail()
    (told,) = [line for line in stack.scheduler.tail().splitlines() if "cannot be read" in line]
    assert str(state) in told
    assert "mesos-gpu restore" in stack.scheduler.tail().partition("cannot be read")[2]
    assert state.read_bytes() == cut, "it is left as it was found"
    assert mesos_says(stack) == running

    bring_back(stack, copy)
    stack.scheduler.start().wait()
    wait_until("its card is its", lambda: job in [gpu["job_id"] for gpu in client.gpus()], 60)
    assert client.job(job)["state"] == "running"
    assert [task["id"] for task in stack.scheduler.get(f"/v1/jobs/{job}/tasks")["tasks"]] == [f"{job}.1"]
    assert not OperatorCalls(client).unknown_tasks()
    assert running.items() <= mesos_says(stack).items()


def test_state_is_closed_to_other_users(stack: Stack, client: Client) -> None:
    """Environments are in the state, the journal, and what the agents keep of tasks."""
    job = start_job(client, "secretive")
    here = state_of(stack).parent
    assert stat.S_IMODE(here.stat().st_mode) == 0o700
    files = [path for path in here.rglob("*") if path.is_file()]
    assert {"state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "state.sqlite.mark", "log"} <= {
        p.name for p in files
    }
    assert {p.name: oct(p.stat().st_mode & 0o077) for p in files} == dict.fromkeys(
        (p.name for p in files), "0o0"
    )
    if os.geteuid() == 0:
        assert readable_by_nobody(stack.directory, b"hunter2") == []
    assert client.job(job)["env"] == {"TOKEN": "***"}
    assert client.job(job, show_env=True)["env"] == {"TOKEN": "hunter2"}


def readable_by_nobody(directory: Path, word: bytes) -> list[str]:
    """Files below that hold the word, and that another user can come to."""
    readable = []
    for root, directories, files in os.walk(directory):
        directories[:] = [d for d in directories if os.lstat(Path(root, d)).st_mode & 0o001]
        for path in (Path(root, name) for name in files):
            if (
                path.is_file()
                and not path.is_symlink()
                and path.stat().st_mode & 0o004
                and word in path.read_bytes()
            ):
                readable.append(str(path))
    return readable


def test_state_that_others_could_read_is_closed_at_the_start(stack: Stack, client: Client) -> None:
    here = state_of(stack).parent
    stack.scheduler.kill()
    here.chmod(0o755)
    for path in here.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    stack.scheduler.start().wait()
    assert {
        str(p): oct(p.stat().st_mode & 0o077) for p in (here, *here.rglob("*")) if p.stat().st_mode & 0o077
    } == {}
