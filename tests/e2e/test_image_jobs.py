"""Jobs with an image on a real Mesos: what they see of devices and driver, with cgroup v1 and v2, and by Docker."""

import json
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from isolator.cgroups import OWN_ROOT, mounted
from isolator.ledger import Ledger
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.shapes import Job
from mesos_gpu.local.cluster import Devices
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from tests.conftest import wait_until
from tests.hosts import driver_volume
from tests.kernel.conftest import needs
from tests.kernel.test_docker_engine import setuid_su

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
APPLETS = [
    "sh",
    "cat",
    "echo",
    "env",
    "id",
    "ls",
    "mknod",
    "mount",
    "sleep",
    "touch",
    "grep",
    "true",
    "test",
    "unshare",
    "cp",
    "chmod",
]
CUDA: Mapping[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data/cuda-image/config.json").read_text()
)
IMAGE = "nvidia/cuda:12.4.1-base-ubuntu22.04"
DRIVER = "535.0.0-simulated"  # what a simulated node says
CUDA_FILE = f"/usr/local/nvidia/lib64/libcuda.so.{DRIVER}"
ALLOWED, DENIED = "No such device or address", "Operation not permitted"
LOOK = "for f in /dev/nvidia*; do cat $f; done 2>&1; echo /usr/local/nvidia/lib64/libcuda.so.5*"
MODES: dict[str, Devices] = {"cgroup1": "mesos", "cgroup2": "cgroup2"}


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    """One with the official CUDA image's own metadata, one that asks for nothing, one that asks for too much."""
    directory, base = open_directory / "images", busybox_layer(dockerd.busybox(), APPLETS)
    env = [f"PATH=/bin:{entry[5:]}" if entry.startswith("PATH=") else entry for entry in CUDA["Env"]]
    save(directory, IMAGE, [base], {**CUDA, "Env": env})
    save(directory, "plain:1", [base], {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/echo", "own", "words"]})
    save(directory, "setuid:1", [base, setuid_su()], {"Env": ["PATH=/bin"]})
    labels = {"com.nvidia.volumes.needed": "nvidia_driver", "com.nvidia.cuda.version": "13.0"}
    save(directory, "newer:13", [base], {"Env": ["PATH=/bin"], "Labels": labels})
    return directory


@pytest.fixture(scope="module", params=list(MODES))
def stack(open_directory: Path, images: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    needs(request.param)
    volumes = open_directory / "volumes"
    driver_volume(volumes, DRIVER)
    given = {"MESOS_GPU_VOLUMES": str(volumes), "MESOS_GPU_ISOLATION": request.param}
    with Stack(
        open_directory / request.param,
        [NodeSpec(2)],
        images=images,
        devices=MODES[request.param],
        executor_environment=given,
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        client.patience_s = 30
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield client


@pytest.fixture(scope="module")
def nodes(open_directory: Path) -> Path:
    """Nodes in a directory of the host; an image does not see them, a task on the host could."""
    directory = open_directory / "nodes"
    directory.mkdir()
    for minor in (0, 1, 255):
        os.mknod(directory / str(minor), stat.S_IFCHR | 0o666, os.makedev(195, minor))
    return directory


def submit(client: Client, command: str | None, **more: Any) -> Job:
    request = {"name": "image", "image": IMAGE, "gpus": 1, "cpus": 0.1, "mem_mib": 64, **more}
    if command is not None:
        request["command"] = command
    return client.submit(request)


def run(client: Client, command: str | None, **more: Any) -> Job:
    job = submit(client, command, **more)
    return [job, *client.follow(job)][-1]


def said(client: Client, job: Job, stream: str = "stdout") -> str:
    return client.logs(job["id"], stream=stream, offset=0, length=60000)["data"]


def test_an_image_gets_its_card_the_drivers_volume_and_nothing_else(client: Client) -> None:
    look = f"{LOOK}; echo $NVIDIA_VISIBLE_DEVICES; echo $LD_LIBRARY_PATH"
    job = run(client, f"{look}; touch /usr/local/nvidia/x 2>&1; id -u")
    assert (job["state"], job["exit_code"]) == ("finished", 0), job["message"]
    lines = said(client, job).splitlines()
    (card,) = [gpu for gpu in client.gpus() if gpu["uuid"] in job["gpu_ids"]]
    assert lines[:2] == [
        f"cat: can't open '/dev/{name}': {ALLOWED}" for name in (f"nvidia{card['minor']}", "nvidiactl")
    ]
    assert lines[2:4] == [CUDA_FILE, card["uuid"]]
    assert lines[4].endswith("/usr/local/nvidia/lib:/usr/local/nvidia/lib64")
    assert "Read-only file system" in lines[5]
    assert lines[6] == "65534"


def test_members_of_a_gang_find_each_other_in_their_images(client: Client) -> None:
    job = run(client, "cat $HOSTFILE; echo $RANK of $WORLD_SIZE at $MASTER_ADDR", tasks=2)
    assert job["state"] == "finished", job["message"]
    for rank, task_id in enumerate(job["task_ids"]):
        told = client.logs(job["id"], stream="stdout", offset=0, length=1000, task_id=task_id)["data"]
        (host,) = job["hostnames"]
        assert told == f"{host} slots=1\n" * 2 + f"{rank} of 2 at {host}\n"


def test_an_image_without_gpus_has_no_card_whatever_is_asked(client: Client) -> None:
    job = run(client, "ls /dev; echo $NVIDIA_VISIBLE_DEVICES", gpus=0, env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert job["state"] == "finished", job["message"]
    assert "nvidia" not in said(client, job)
    assert said(client, job).endswith("void\n")


def test_escapes_from_an_image_are_refused(client: Client) -> None:
    tries = {
        "mknod": "mknod /tmp/n c 195 1 || mknod /mnt/mesos/sandbox/n c 195 1",
        "mounting devices": "mkdir -p /tmp/d && mount -t devtmpfs none /tmp/d",
        "its own rules, v1": "echo a > /sys/fs/cgroup/devices/devices.allow",
        "cgroups": "mkdir -p /tmp/c && mount -t cgroup -o devices none /tmp/c",
        "a user namespace": "unshare -Ur mknod /tmp/n c 195 1",
        "the host's root": "ls /proc/1/root/dev/nvidiactl",
    }
    script = "\n".join(
        f"( {command} ) 2>/dev/null && echo ESCAPED {shlex.quote(name)}" for name, command in tries.items()
    )
    job = run(client, script + "\necho tried", gpus=0)
    assert job["state"] == "finished", job["message"]
    assert said(client, job) == "tried\n"


def test_a_setuid_program_of_an_image_gains_nothing(client: Client) -> None:
    """Root of that image has no password: a su that is let makes root of anybody."""
    job = run(client, "grep NoNewPrivs /proc/self/status; id -u; su -c 'id -u' || true", image="setuid:1")
    assert "0" not in said(client, job).split()
    assert said(client, job).split()[:3] == ["NoNewPrivs:", "1", "65534"]


def test_what_the_driver_cannot_run_waits_for_one_that_can(client: Client) -> None:
    job_id = submit(client, "echo never", image="newer:13")["id"]
    wait_until("the host refuses it", lambda: client.job(job_id)["learnt_min_driver"] == "580")
    job, why = client.job(job_id), client.why(job_id)
    client.kill(job_id)
    assert (job["state"], job["launches"], job["attempts"]) == ("pending", 1, 0)
    assert all(version in str(job["message"]) for version in ("13.0", "535.0.0", "12.2")), job["message"]
    assert (why["summary"], why["can_ever_run"]) == (
        "the image needs CUDA 13.0 or newer, driver 580; node1.localhost has 535.0.0-simulated",
        False,
    )


def test_an_images_own_entrypoint_and_no_volume_if_it_asks_for_none(client: Client) -> None:
    job = run(client, None, image="plain:1")
    assert (job["state"], said(client, job)) == ("finished", "own words\n"), job["message"]
    job = run(client, "ls /usr/local", image="plain:1")
    assert "nvidia" not in said(client, job)


def test_an_image_that_is_not_there(client: Client) -> None:
    job = run(client, "true", image="missing:1")
    assert job["state"] == "failed"
    assert "missing:1" in str(job["message"])


def test_exit_status_and_kill(client: Client) -> None:
    assert run(client, "exit 7")["exit_code"] == 7
    job = client.submit(
        {"name": "k", "image": IMAGE, "command": "trap 'echo saved; exit 4' TERM; echo r; while :; do sleep 0.05; done",
         "cpus": 0.1, "mem_mib": 64, "gpus": 1}
    )  # fmt: skip
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running" and said(client, job) == "r\n")
    client.kill(job["id"])
    wait_until("it is killed", lambda: client.job(job["id"])["state"] == "killed")
    assert said(client, job) == "r\nsaved\n"


def test_a_host_task_beside_it_is_denied_as_well(client: Client, nodes: Path) -> None:
    job = run(client, f"for n in 0 1 255; do cat {nodes}/$n; done 2>&1; true", image=None, gpus=0)
    assert said(client, job).count(DENIED) == 3
    job = run(client, f"for n in 0 1 255; do cat {nodes}/$n; done 2>&1; true", image=None, gpus=1)
    assert (said(client, job).count(DENIED), said(client, job).count(ALLOWED)) == (1, 2)


def test_an_image_outlives_its_agents_restart(stack: Stack, client: Client) -> None:
    job = client.submit(
        {
            "name": "lives",
            "image": IMAGE,
            "command": "echo begun; sleep 4; echo ended",
            "cpus": 0.1,
            "mem_mib": 64,
        }
    )
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    stack.cluster.agents[0].restart()
    wait_until("it has finished", lambda: client.job(job["id"])["state"] == "finished")
    assert client.job(job["id"])["launches"] == 1
    assert said(client, job) == "begun\nended\n"


def test_nothing_of_it_stays(stack: Stack, client: Client) -> None:
    run(client, "true")
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    wait_until("nothing is held", lambda: not ledger.holdings())
    runs = "mesos/agent-1/work/slaves/*/frameworks/*/executors/*/runs/*"
    containers = {path.name for path in stack.directory.glob(runs)}
    assert len(containers) > 2
    roots = [Path("/dev/mesos_gpu"), *(mount / OWN_ROOT for mount in mounted().values())]
    assert {path.name for root in roots for path in root.glob("*")}.isdisjoint(containers)


# --- by the Docker Engine


@pytest.fixture(scope="module")
def engine(images: Path) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd() as started:
        started.load(images / f"{IMAGE}.tar")
        yield started


@pytest.fixture(scope="module")
def docker(open_directory: Path, engine: dockerd.Dockerd) -> Iterator[Stack]:
    """An agent that knows nothing of images."""
    needs("cgroup1")
    volumes = open_directory / "volumes"
    driver_volume(volumes, DRIVER)
    given = {"MESOS_GPU_VOLUMES": str(volumes), "MESOS_GPU_DOCKER_SOCKET": str(engine.socket)}
    with Stack(open_directory / "docker", [NodeSpec(2)], executor_environment=given) as running:
        yield running


def test_the_docker_engine_runs_the_same_with_the_same_guarantees(docker: Stack) -> None:
    with Client(docker.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        look = f"{LOOK}; mknod /mnt/mesos/sandbox/n c 195 1 2>&1; id -u"
        job = run(client, look, container_engine="docker")
        assert job["state"] == "finished", job["message"]
        lines = said(client, job).splitlines()
        assert [line.rpartition(": ")[2] for line in lines] == [ALLOWED, ALLOWED, CUDA_FILE, DENIED, "65534"]
        other = run(client, "true", gpus=0)
        assert other["state"] == "failed"
        assert "--isolation needs" in str(other["message"])


def test_an_agents_restart_loses_no_task_of_the_docker_engine(docker: Stack) -> None:
    with Client(docker.url) as client:
        client.patience_s = 30
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        command = {"command": "echo begun; sleep 4; echo ended", "container_engine": "docker"}
        job = client.submit(
            {"name": "lives", "image": IMAGE, "cpus": 0.1, "mem_mib": 64, "gpus": 1, **command}
        )
        wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
        docker.cluster.agents[0].restart()
        wait_until("it has finished", lambda: client.job(job["id"])["state"] == "finished")
        assert client.job(job["id"])["launches"] == 1
        assert said(client, job) == "begun\nended\n"
