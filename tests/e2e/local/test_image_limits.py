"""Limits of images on a real Mesos whose agent has no isolators for memory, CPUs and processes: the executor's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.devices.cgroups import OWN_ROOT, mount_points
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import command, kill_all
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
ISOLATORS = "cgroups/devices,filesystem/linux,docker/runtime,linux/nnp,namespaces/ipc"
MAX_PROCESSES = 200  # processes of a task
IMAGE = "plain:1"
TESTED: dict[str | None, dict[str, Any]] = {"image": {"image": IMAGE}, "host": {}}


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    needs("cgroup1")
    images = open_directory / "images"
    applets = ["sh", "cat", "echo", "sleep", "tail", "grep", "true"]
    save(images, IMAGE, [busybox_layer(dockerd.busybox(), applets)], {"Env": ["PATH=/bin"]})
    with Stack(
        open_directory / "limits",
        [NodeSpec(1, flags={"isolation": ISOLATORS})],
        images=images,
        devices="mesos",
        executor_environment={"MESOS_GPU_ISOLATION": "cgroup1", "MESOS_GPU_PIDS": str(MAX_PROCESSES)},
        scheduler_arguments=["--report-interval", "2"],
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        client.patience_s = 30
        wait_until("the node reports", client.gpus)
        yield client
        kill_all(client)
    for path in {*mount_points().values()}:
        wait_until("no cgroup is left", lambda path=path: not [*_containers(stack, path)])  # type: ignore[misc]


def _containers(stack: Stack, mount: Path) -> Iterator[Path]:
    """Return the cgroups of ended containers of the stack in a hierarchy."""
    runs = "mesos/agent-1/work/slaves/*/frameworks/*/executors/*/runs/*"
    ours = {path.name for path in stack.directory.glob(runs)}
    yield from (path for path in (mount / OWN_ROOT).glob("*") if path.name in ours)


def run(client: Client, command: str, **more: Any) -> Job:
    job = client.submit({"name": "limits", "command": command, "cpus": 0.5, "mem_mib": 64, **more})
    return [job, *client.follow(job)][-1]


def said(client: Client, job: Job) -> str:
    return client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]


@pytest.mark.parametrize("kind", TESTED)
def test_task_is_ended_at_its_memory_limit(client: Client, kind: str) -> None:
    """The child that uses the memory is not the first process, which would go on."""
    hungry = "x=0123456789; while :; do x=$x$x; done"
    job = run(client, f"({hungry}) & wait; sleep 600", **TESTED[kind])
    told = re.fullmatch(r"out of memory: 64 MiB asked, (\d+) used; ask for more with --mem", job["message"])
    assert told is not None, job["message"]
    assert 60 <= int(told[1]) <= 68
    assert (job["state"], job["exit_code"]) == ("failed", 137)


@pytest.mark.parametrize("kind", TESTED)
def test_task_has_only_so_many_processes(client: Client, kind: str) -> None:
    bomb = "i=0; while [ $i -lt 400 ] && sleep 600 & do i=$((i+1)); echo $i; done"
    job = run(
        client, f"({bomb}) > $MESOS_SANDBOX/made 2>/dev/null; tail -n 1 $MESOS_SANDBOX/made", **TESTED[kind]
    )
    assert MAX_PROCESSES - 20 < int(said(client, job).split()[-1]) < MAX_PROCESSES, job["message"]


@pytest.mark.parametrize("kind", TESTED)
def test_task_has_a_cgroup_for_each_limit_and_changes_none(client: Client, kind: str) -> None:
    files = "/sys/fs/cgroup/*/memory.limit_in_bytes /sys/fs/cgroup/*/cpu.cfs_quota_us /sys/fs/cgroup/*/cgroup.procs"
    look = f"for f in {files}; do (echo -1 > $f) 2>/dev/null && echo changed $f; done; cat /proc/self/cgroup; sleep 3"
    job = client.submit(
        {"name": "limits", "command": look, "cpus": 0.5, "cpu_limit": 0.5, "mem_mib": 64, **TESTED[kind]}
    )
    wait_until("its start", lambda: client.job(job["id"])["state"] == "running")
    wait_until("its output", lambda: "0::" in said(client, job))
    *paths, last = said(client, job).splitlines()
    path_by_controller = {
        name: line.split(":")[2] for line in (*paths, last) for name in line.split(":")[1].split(",")
    }
    points = mount_points()
    for controller, (name, value) in {
        "memory": ("memory.limit_in_bytes", str(64 << 20)),
        "cpu": ("cpu.cfs_quota_us", "50000"),
        "pids": ("pids.max", str(MAX_PROCESSES)),
    }.items():
        path = path_by_controller[controller]
        assert path.startswith(f"/{OWN_ROOT}/"), controller
        assert (points[controller] / path.lstrip("/") / name).read_text().strip() == value
    assert not [line for line in paths if "changed" in line]
    assert [job, *client.follow(job)][-1]["state"] == "finished"


def test_command_beside_an_image_is_in_its_cgroups(stack: Stack, client: Client) -> None:
    job = client.submit(
        {"name": "limits", "command": "sleep 600", "image": IMAGE, "cpus": 0.5, "mem_mib": 64}
    )
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    inside = command("--url", stack.url, "exec", job["id"], "--", "cat", "/proc/self/cgroup").stdout.decode()
    client.kill(job["id"])
    of_limits = [line for line in inside.splitlines() if re.search(r":(memory|cpu|pids):", line)]
    assert len(of_limits) == 3, inside
    assert all(f"/{OWN_ROOT}/" in line for line in of_limits), inside
