"""Descriptors of sandbox directories passed to other tasks: their holders cannot mislead root."""

import io
import os
import signal
import socket
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, TextIO

import pytest

from isolator.gpus.ledger import Ledger
from isolator.host.unsealed import place_of
from mesos_gpu.cli.client import Client, Refused, ended
from mesos_gpu.cli.reach.failures import Unreachable
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.doubles.python_image import python_layer
from tests.e2e.conftest import EACH_FORM
from tests.e2e.hosts.test_image_jobs import MODES
from tests.e2e.sealed.endless import AHEAD
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the tasks run as other users"),
]
PROGRAM = Path(__file__).with_name("descriptors.py")
ENDLESS = Path(__file__).with_name("endless.py")
PYTHON = "/usr/bin/python3"  # one that any user can run
MODE = "cgroup2"
POOL = {"MESOS_GPU_USER_POOL": "62000-62019"}
KILLED = "was killed: it held a directory of the sandbox of a task that had ended"
CANARY = "canary: only root may read this"
FORMS: dict[str, dict[str, Any]] = {
    "process": {},
    "nested": {"image": "descriptors:1", "container_engine": "mesos"},
    "own": {"image": "descriptors:1", "container_engine": "own"},
    "docker": {"image": "descriptors:1", "container_engine": "docker"},
}


@pytest.fixture
def shared(open_directory: Path) -> Path:
    """A directory that all users write to, with the program of the attack in it."""
    path = open_directory / f"shared-{time.monotonic_ns()}"
    path.mkdir()
    path.chmod(0o1777)
    for program in (PROGRAM, ENDLESS):
        (path / program.name).write_bytes(program.read_bytes())
    return path


@pytest.fixture(scope="module")
def roots(open_directory: Path) -> Path:
    """A directory that only root may enter, with files in it."""
    path = open_directory / "roots"
    path.mkdir(mode=0o700)
    (path / "canary").write_text(CANARY)
    (path / "canary").chmod(0o600)
    for number in range(400):
        (path / f"file{number}").touch()
    return path


def submit(client: Client, shared: Path, *words: str, program: Path = PROGRAM, **more: Any) -> str:
    command = " ".join([PYTHON, f"shared/{program.name}", *words])
    return client.submit(
        {
            "name": words[0],
            "command": f'cd "$MESOS_SANDBOX"; exec {command}',
            "volumes": [f"{shared}:shared"],
            "cpus": 0.1,
            "mem_mib": 64,
            **more,
        }
    )["id"]


def asked(client: Client, job: str, path: str) -> str:
    """Return the answer to a request of the job's owner for a file of the job."""
    try:
        pieces = client.stream(f"/v1/jobs/{job}/files", {"what": "get", "path": path})
        return b"".join(pieces).decode(errors="replace")
    except (Refused, Unreachable) as error:  # of a busy host it may not come in time
        return str(error)


@contextmanager
def passed_on(client: Client, shared: Path, roots: Path, *directory: str, **giver: Any) -> Iterator[str]:
    """Have a directory passed on, whose holder exchanges names there from now on; the id of the job that has ended."""
    holder = submit(client, shared, "hold", "shared/socket", "shared/said")
    job = submit(client, shared, "give", "shared/socket", str(roots), *directory, **giver)
    wait_until("the giver has ended", lambda: ended(client.job(job)), 60)
    assert client.job(job)["state"] == "finished", client.job(job)["message"]
    try:
        yield job
    finally:
        client.kill(holder)
        wait_until("the holder has ended", lambda: ended(client.job(holder)), 60)


def attack(client: Client, shared: Path, roots: Path, **giver: Any) -> None:
    """Let root read through a passed directory until every change by its holder is refused."""
    had: set[str] = set()
    number, tenants = 0, "the tenant's"

    def refused() -> bool:
        nonlocal number
        number += 1
        had.add(asked(client, job, f"d/mine{number % 20}"))
        had.add(asked(client, job, f"d/own{number % 20}/canary"))
        return (shared / "said").exists()

    with passed_on(client, shared, roots, **giver) as job:
        wait_until("the holder is refused", refused, 60)
        names = [f"d/{name}{number}" for name in ("mine", "file") for number in range(2)]
        wait_until(
            "its owner has what it left", lambda: any(tenants in asked(client, job, n) for n in names), 120
        )
        had |= {asked(client, job, name) for name in names}
    assert not any(CANARY in each for each in had)
    assert (shared / "said").read_text() == "Permission denied"


def writable(name: str) -> bytes:
    """A layer with a directory that every user may write to, as /tmp of most images."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(member)
    return out.getvalue()


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory = open_directory / "images"
    packages = ("collections", "ctypes", "encodings", "importlib", "json", "re")
    modules = ("_ctypes", "_struct", "_json", "_socket", "select", "math", "array")
    layers = [
        busybox_layer(dockerd.busybox(), ["sh"]),
        python_layer(packages, modules),
        writable("opt"),
    ]
    save(directory, "descriptors:1", layers, {"Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr"]})
    return directory


@contextmanager
def started(how: str, directory: Path, images: Path, socket: Path) -> Iterator[Stack]:
    """Start a cluster that runs images, and containers of the engine. `how`: plain, secure or pool."""
    needs(MODE)
    given = {
        "MESOS_GPU_DOCKER_SOCKET": str(socket),
        "MESOS_GPU_ISOLATION": MODE,
        "MESOS_GPU_VOLUME_ROOTS": str(directory),
        **(POOL if how == "pool" else {}),
    }
    with Stack(
        directory / f"images-{how}",
        [NodeSpec(1)],
        images=images,
        devices=MODES[MODE],
        secure=how == "secure",
        executor_environment=given,
    ) as stack:
        yield stack


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path, unstarted_engine: dockerd.Dockerd) -> Iterator[Stack]:
    with started("plain", open_directory, images, unstarted_engine.socket) as stack:
        yield stack


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, open_directory: Path, images: Path, engine: dockerd.Dockerd
) -> Iterator[Stack]:
    with started(request.param, open_directory, images, engine.socket) as stack:
        yield stack


@pytest.mark.parametrize("form", EACH_FORM, indirect=True)
def test_root_reads_nothing_through_a_directory_that_was_passed_on(
    stack: Stack, shared: Path, roots: Path, form: str
) -> None:
    with client_of(stack, 1) as client:
        attack(client, shared, roots, **FORMS[form])


def test_agent_removes_an_image_without_the_files_that_a_task_wrote_there(
    stack: Stack, shared: Path, roots: Path
) -> None:
    """The agent removes the file system of a container as root, by full paths, when the container has ended."""
    before = sorted(path.name for path in roots.iterdir())
    provisioner = next(stack.directory.rglob("agent-1/work/provisioner"))
    with client_of(stack, 1) as client, passed_on(client, shared, roots, "/opt", **FORMS["nested"]):
        agents = provisioner / "containers"
        wait_until("the agent has removed it", lambda: not glob("*/containers/*", root_dir=agents), 60)
        assert sorted(path.name for path in roots.iterdir()) == before
    left = provisioner / "mesos-gpu"
    assert left.is_dir()
    wait_until("what the task wrote is removed", lambda: not any(left.iterdir()), 60)


@pytest.mark.parametrize("kind", ["listening", "bound", "udp"])
@pytest.mark.parametrize("form", EACH_FORM, indirect=True)
def test_a_socket_that_was_passed_on_keeps_no_port_from_the_next_task(
    stack: Stack, shared: Path, form: str, kind: str
) -> None:
    """Without the check before its start, each task that gets the port fails: "Address already in use"."""
    port = stack.cluster.fixed_ports[1]
    with client_of(stack, 1) as client:
        keeper = submit(client, shared, "keep", "shared/socket", **FORMS[form])
        lender = submit(client, shared, "lend", "shared/socket", kind, ports=[port], **FORMS[form])
        wait_until("the lender has ended", lambda: ended(client.job(lender)), 60)
        assert client.job(lender)["state"] == "finished", client.job(lender)["message"]
        assert client.job(keeper)["state"] == "running"
        server = submit(client, shared, "serve", ports=[port])
        wait_until("the server has ended", lambda: ended(client.job(server)), 60)
        job = client.job(server)
        assert (job["state"], job["infrastructure_failures"]) == ("finished", 0), job["message"]
        wait_until("the keeper has ended", lambda: ended(client.job(keeper)), 60)
        assert client.job(keeper)["state"] == "failed"
        errors = client.logs(keeper, stream="stderr", offset=0, length=10000)["data"]
        assert f"was killed: it held a socket at port {port} after the task" in errors


def test_port_that_is_taken_is_a_failure_of_the_host(stack: Stack, shared: Path) -> None:
    """No launch counts as an attempt of the job, and the first one after the end of the other server runs."""
    port = stack.cluster.fixed_ports[1]
    with client_of(stack, 1) as client, socket.create_server(("", port)) as other:
        server = submit(client, shared, "serve", ports=[port])
        wait_until("it was tried again", lambda: client.job(server)["infrastructure_failures"] >= 3, 60)
        job = client.job(server)
        assert job["attempts"] == 0
        assert f"port {port} of this host, which Mesos gave to the task, is bound by" in job["message"]
        assert f"held by process {os.getpid()} (" in job["message"]
        other.close()
        wait_until("the server has ended", lambda: ended(client.job(server)), 120)
        assert client.job(server)["state"] == "finished", client.job(server)["message"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["secure", "pool"])
def test_root_reads_nothing_through_a_passed_directory_on_secure_and_pool_clusters(
    open_directory: Path, shared: Path, roots: Path, how: str
) -> None:
    given = {"MESOS_GPU_VOLUME_ROOTS": str(open_directory), **(POOL if how == "pool" else {})}
    with (
        Stack(
            open_directory / how, [NodeSpec(1)], executor_environment=given, secure=how == "secure"
        ) as stack,
        client_of(stack, 1) as client,
    ):
        attack(client, shared, roots)


@pytest.mark.long
@pytest.mark.parametrize(
    ("guarded", "form"),
    [("secure", "nested"), ("secure", "docker"), ("pool", "docker")],
    indirect=True,
    scope="module",
)
def test_root_reads_nothing_through_a_directory_passed_from_containers_on_secure_and_pool_clusters(
    guarded: Stack, shared: Path, roots: Path, form: str
) -> None:
    """Mesos runs images as users with an account only, which uids of a pool do not have."""
    with client_of(guarded, 1) as client:
        attack(client, shared, roots, **FORMS[form])


@contextmanager
def cleaned(directory: Path, name: str) -> Iterator[tuple[Stack, Client]]:
    """A cluster of a node whose agent soon removes what ended tasks left, and its client."""
    given = {"MESOS_GPU_VOLUME_ROOTS": str(directory)}
    flags = {"gc_delay": "4secs", "disk_watch_interval": "1secs"}
    with (
        Stack(directory / name, [NodeSpec(1, flags=flags)], executor_environment=given) as stack,
        client_of(stack, 1) as client,
    ):
        yield stack, client


def sandboxes(stack: Stack, task: str | None) -> list[Path]:
    """Return the sandboxes of a task that are there."""
    runs = f"mesos/agent-1/work/slaves/*/frameworks/*/executors/{task}/runs"
    return list(stack.directory.glob(f"{runs}/*-*"))


def slow_down(pid: int, until: Callable[[], bool], timeout_s: float) -> None:
    """Let a process run for a small part of the time until a condition is met."""
    deadline = time.monotonic() + timeout_s
    process = os.pidfd_open(pid)
    try:
        while not until():
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
            signal.pidfd_send_signal(process, signal.SIGSTOP)
            time.sleep(0.2)
            signal.pidfd_send_signal(process, signal.SIGCONT)
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def again(file: TextIO) -> str:
    """Read a file from its beginning."""
    file.seek(0)
    return file.read()


def test_clean_up_of_the_agent_removes_the_sandbox_alone(
    open_directory: Path, shared: Path, roots: Path
) -> None:
    """The agent removes directories by their full paths, as root."""
    before = sorted(path.name for path in roots.iterdir())
    with (
        cleaned(open_directory, "gc") as (stack, client),
        passed_on(client, shared, roots) as job,
    ):
        task = client.job(job)["task_id"]
        wait_until("the sandbox is removed", lambda: not sandboxes(stack, task), 60)
        assert (shared / "said").exists()
    assert sorted(path.name for path in roots.iterdir()) == before


@pytest.mark.long
@pytest.mark.timeout(600)  # some 30,000 directories are made, and removed
def test_seal_ends_though_a_holder_adds_directories_without_end(
    open_directory: Path, shared: Path, roots: Path
) -> None:
    """Until it is killed, the holder adds directories, and exchanges names in others.

    On an idle host the seal of a directory may take less time than its making, and the seal would end without more.
    So the process that seals is slowed down until the holder is killed, which follows the move of the directories.
    """
    before = sorted(path.name for path in roots.iterdir())
    with cleaned(open_directory, "endless") as (stack, client):
        holder = submit(client, shared, "hold", "shared/socket", "shared/said", program=ENDLESS)
        job = submit(client, shared, "give", "shared/socket", str(roots), "shared/end", program=ENDLESS)
        said, ledger = shared / "said", Ledger(stack.directory / "nodes/1/ledger.sqlite")
        wait_until("there is much to seal", lambda: said.exists() and lines_of(said) >= AHEAD, 120)
        task = client.job(job)["task_id"]
        (executor,) = (each.owner.pid for each in ledger.holdings() if each.task == task)
        (sandbox,), (holders_sandbox,) = (
            sandboxes(stack, client.job(each)["task_id"]) for each in (job, holder)
        )
        with (holders_sandbox / "stderr").open() as errors:  # the agent may remove it soon after the end
            (shared / "end").touch()
            slow_down(executor, lambda: bool(again(errors)), 120)
            assert KILLED in again(errors)  # where the seal was faster, the holder says that it was refused
        assert lines_of(said) > AHEAD, "the holder added directories during the seal"
        wait_until("the holder is killed", lambda: ended(client.job(holder)), 60)
        assert client.job(holder)["state"] == "failed"
        assert client.job(job)["state"] == "finished", client.job(job)["message"]
        wait_until("the seal has ended", lambda: all(each.task != task for each in ledger.holdings()), 120)
        assert not Path(place_of(str(sandbox))).exists()
        wait_until("the agent has removed the sandbox", lambda: not sandbox.exists(), 240)
    assert sorted(path.name for path in roots.iterdir()) == before
