"""Processes, libraries and modules of a launch on a real agent: no more than a task needs."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.exits import listener
from bench.starts import await_containers, containers
from mesos_gpu.cli.client import Client
from mesos_gpu.libmesos import fetch, helpers
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
#: Whether the pid namespace is the kernel's first (PROC_PID_INIT_INO of include/linux/proc_ns.h).
IS_HOST = Path("/proc/self/ns/pid").stat().st_ino == 0xEFFFFFFC
#: What an executor may import at its start, beside the modules of an empty interpreter.
START = frozenset(Path(__file__, "../../data/executor_imports.txt").resolve().read_text().split())
#: And until its end, for a plain task: groups of its user, the seal of its sandbox, events of memory of cgroup v1.
LATER = {
    "isolator.confinement.memory_events",
    "isolator.__main__", "mesos_gpu.adapters.accounts", "mesos_gpu.model.jobs.users", "grp",
    "isolator.host.sealing", "isolator.host.beneath",
}  # fmt: skip
#: And for a task that failed or was killed: the search for a lack of memory.
FAILED = {
    "isolator.runs.memory", "mesos_gpu.model.tasks.status", "mesos_gpu.model.words", "mesos_gpu.policy.tasks",
    "mesos_gpu.policy.tasks.limits",
}  # fmt: skip


@pytest.fixture(scope="module")
def counting(open_directory: Path) -> Iterator[tuple[Stack, Client, Path]]:
    """Start a node whose executors write down, at their ends, which modules they have; and where."""
    launcher, told = open_directory / "counting/mesos/libexec/mesos-gpu-executor", open_directory / "imported"
    program = open_directory / "executor.py"
    program.write_text(
        f"text = open({str(launcher)!r}).read()\n"
        "exec(text.replace('sys.exit(main())', 'code = main()'))\n"
        f"open({str(told)!r}, 'w').write(' '.join(sys.modules))\n"
        "sys.exit(code)\n"
    )
    command = f"exec {shlex.join([helpers.python(), '-IS', str(program)])}"
    with (
        Stack(
            open_directory / "counting", [NodeSpec(1)], scheduler_arguments=["--executor-command", command]
        ) as stack,
        Client(stack.url) as client,
    ):
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        yield stack, client, told


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(2)]) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2) as client:
        yield client


def submit(client: Client, command: str) -> str:
    request = {"command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}
    return str(client.submit(request)["id"])


@pytest.mark.parametrize(
    ("command", "state", "more"),
    [("true", "finished", set[str]()), ("exit 3", "failed", FAILED), ("sleep 600", "killed", FAILED)],
)
def test_launch_imports_a_bounded_set_of_modules_to_its_end(
    counting: tuple[Stack, Client, Path], command: str, state: str, more: set[str]
) -> None:
    _, client, told = counting
    told.unlink(missing_ok=True)
    job = submit(client, command)
    if state == "killed":
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
        client.kill(job)
    wait_until("it ends", lambda: client.job(job)["state"] == state)
    wait_until("its executor ends", lambda: told.exists() and told.read_text())
    empty = subprocess.run(
        [helpers.python(), "-IS", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    allowed = {*empty.split(), *START, *LATER, *more, "marshal"}
    assert set(told.read_text().split()) - allowed == set()


def first_mapping(process: psutil.Process) -> str:
    """Return the addresses at which its program begins; those of a forked process are those of its parent."""
    return Path(f"/proc/{process.pid}/maps").read_text().partition(" ")[0]


def test_launch_forks_the_executor_without_the_library_of_mesos(stack: Stack, client: Client) -> None:
    agent = psutil.Process(stack.cluster.agents[0].pid)
    before = {each.pid for each in agent.children()}
    job = submit(client, "sleep 600")
    wait_until("it runs", lambda: client.job(job)["state"] == "running")
    (helper,) = (each for each in agent.children() if each.pid not in before)
    (executor,) = helper.children()
    library = fetch.library_path().name
    assert library in Path(f"/proc/{agent.pid}/maps").read_text(), "agents do have it"
    for process in (helper, executor):
        assert library not in Path(f"/proc/{process.pid}/maps").read_text()
    assert first_mapping(executor) == first_mapping(helper), "the executor was forked, not executed"
    assert executor.cmdline()[2].endswith("/mesos-gpu-executor")
    client.kill(job)
    wait_until("it is killed", lambda: client.job(job)["state"] == "killed")
    wait_until("its processes have ended", lambda: not helper.is_running())


def test_launch_takes_four_processes(stack: Stack, client: Client) -> None:
    exits, why = listener()
    if exits is None and not IS_HOST:
        pytest.skip(f"needs the host's pid namespace: {why}")
    assert exits is not None, why
    resident = containers(stack)
    with exits:
        jobs = [submit(client, "true") for _ in range(4)]
        wait_until("they end", lambda: all(client.job(job)["state"] == "finished" for job in jobs))
        await_containers(stack, resident)
    parts = exits.parts([agent.pid for agent in stack.cluster.agents])
    assert parts is not None
    processes = (
        "its helper, its executor, the task, and the process that commands in the task are forked from"
    )
    assert parts.processes == 4 * len(jobs), processes
    assert 0 < parts.tasks < parts.executors
    assert 0 < parts.helpers < parts.executors
