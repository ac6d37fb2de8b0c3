"""Jobs with an image on a real Mesos: what they see of devices and driver, with cgroup v1 and v2, and by Docker."""

import contextlib
import http.server
import json
import os
import re
import shlex
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from isolator.devices.cgroups import OWN_ROOT, mounted
from isolator.gpus.ledger import Ledger
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.code.send import upload
from mesos_gpu.local.cluster import Devices
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import kill_all
from tests.conftest import wait_until
from tests.cuda import compiled, volume_of_doubles
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, layer, save
from tests.e2e.hosts import sharing
from tests.hosts import driver_volume
from tests.kernel.conftest import EACH_CGROUP, needs
from tests.kernel.docker.test_docker_engine import setuid_su

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
APPLETS = [
    "sh", "cat", "echo", "env", "id", "ls", "mknod", "mount", "sleep", "touch", "grep", "httpd", "true",
    "test", "unshare", "cp", "chmod", "ln", "mkfifo", "rm", "cut", "find", "head", "printf", "sort",
    "umount",
]  # fmt: skip
CUDA: Mapping[str, Any] = json.loads((Path(__file__).parents[2] / "data/cuda-image/config.json").read_text())
ROOTS = "MESOS_GPU_VOLUME_ROOTS"
IMAGE = "nvidia/cuda:12.4.1-base-ubuntu22.04"
DRIVER = "535.0.0-simulated"  # what a simulated node says
CUDA_FILE = f"/usr/local/nvidia/lib64/libcuda.so.{DRIVER}"
ALLOWED, DENIED = "No such device or address", "Operation not permitted"
LOOK = "for f in /dev/nvidia*; do cat $f; done 2>&1; echo /usr/local/nvidia/lib64/libcuda.so.5*"
MODES: dict[str, Devices] = {"cgroup1": "mesos", "cgroup2": "cgroup2"}


@pytest.fixture(scope="module")
def images(open_directory: Path, libraries: tuple[Path, dict[str, str]]) -> Path:
    """An image with the official CUDA image's metadata, one that asks for nothing, one that asks for too much, and
    those of `sharing`."""
    directory, base = open_directory / "images", busybox_layer(dockerd.busybox(), APPLETS)
    env = [f"PATH=/bin:{entry[5:]}" if entry.startswith("PATH=") else entry for entry in CUDA["Env"]]
    save(directory, IMAGE, [base], {**CUDA, "Env": env})
    save(
        directory,
        "plain:1",
        [base],
        {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/echo"], "Cmd": ["own", "words"]},
    )
    save(directory, "placed:1", [base], {"Env": ["PATH=/bin"], "WorkingDir": "/bin"})
    save(directory, "setuid:1", [base, setuid_su()], {"Env": ["PATH=/bin"]})
    labels = {"com.nvidia.volumes.needed": "nvidia_driver", "com.nvidia.cuda.version": "13.0"}
    save(directory, "newer:13", [base], {"Env": ["PATH=/bin"], "Labels": labels})
    uses = [base, sharing.client_layer(libraries[0] / "client")]
    save(directory, sharing.IMAGE, uses, {"Env": ["PATH=/bin"]})
    own = layer({"opt/own/lib": None, "opt/own/lib/libcuda.so.1": b"x", "etc/ld.so.conf": b"/opt/own/lib\n"})
    save(directory, sharing.OWN_CUDA, [*uses, own], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The doubles of the driver's, and ours."""
    return compiled(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def data(open_directory: Path) -> Path:
    """A directory of the host whose operator gives what is in it."""
    directory = open_directory / "data"
    for name, mode in (("models", 0o755), ("out", 0o777)):
        (directory / name).mkdir(parents=True)
        (directory / name).chmod(mode)
    (directory / "models/weights").write_text("7\n")
    return directory


MAX = 200  # processes of a task


@pytest.fixture(scope="module", params=EACH_CGROUP)
def stack(
    open_directory: Path,
    images: Path,
    data: Path,
    libraries: tuple[Path, dict[str, str]],
    unstarted_engine: dockerd.Dockerd,
    request: pytest.FixtureRequest,
) -> Iterator[Stack]:
    needs(request.param)
    volumes = open_directory / "volumes"
    driver_volume(volumes, DRIVER)
    volume_of_doubles(volumes, open_directory / f"driver-{request.param}", DRIVER, *libraries)
    given = {
        "MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket),
        "MESOS_GPU_USERS": f"{sharing.NEIGHBOUR},1000-",
        "MESOS_GPU_VOLUMES": str(volumes),
        "MESOS_GPU_ISOLATION": request.param,
        "MESOS_GPU_PIDS": str(MAX),
        ROOTS: str(data),
    }
    with Stack(
        open_directory / request.param,
        [NodeSpec(2)],
        images=images,
        devices=MODES[request.param],
        executor_environment=given,
        scheduler_arguments=["--users", given["MESOS_GPU_USERS"], "--report-interval", "2"],
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


def test_an_image_gets_the_paths_of_its_host_that_the_operator_allows(client: Client, data: Path) -> None:
    sees_volumes(client, data, "weights")
    other = run(client, "true", volumes=["/etc:/data"])
    assert other["state"] == "failed"
    assert "this host does not give /etc to tasks" in str(other["message"])


def sees_volumes(client: Client, data: Path, file: str, **more: Any) -> None:
    """Which stay after it, and what it may only read is as it was."""
    volumes = [f"{data}/models:/data:ro", f"{data}/out:out", f"{data}/models/weights:{file}:ro"]
    command = f"cd $MESOS_SANDBOX; cat /data/weights {file}; echo kept > out/new; touch /data/x 2>&1"
    job = run(client, command, volumes=volumes, **more)
    lines = ["7", "7", "touch: /data/x: Read-only file system"]
    assert said(client, job).splitlines() == lines, job["message"]
    assert (data / "out/new").read_text() == "kept\n"
    assert (data / "out/new").owner() == "nobody"
    (data / "out/new").unlink()


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


def test_image_that_the_driver_cannot_run_waits_for_a_newer_driver(client: Client) -> None:
    job_id = submit(client, "echo never", image="newer:13")["id"]
    wait_until("the host refuses it", lambda: client.job(job_id)["learnt_min_driver"] == "580")
    job, why = client.job(job_id), client.why(job_id)
    client.kill(job_id)
    assert (job["state"], job["launches"], job["attempts"]) == ("pending", 1, 0)
    assert all(version in str(job["message"]) for version in ("13.0", "535.0.0", "12.2")), job["message"]
    assert (why["summary"], why["can_ever_run"]) == (
        "the image needs CUDA 13.0 or newer, driver 580; 127.0.0.11 has 535.0.0-simulated",
        False,
    )


def test_an_images_own_entrypoint_and_no_volume_if_it_asks_for_none(client: Client) -> None:
    job = run(client, None, image="plain:1")
    assert (job["state"], said(client, job)) == ("finished", "own words\n"), job["message"]
    job = run(client, None, image="plain:1", args=["other", "words"], pull=True)
    assert said(client, job) == "other words\n", job["message"]
    job = run(client, "ls /usr/local", image="plain:1")
    assert "nvidia" not in said(client, job)


@pytest.fixture(scope="module")
def artifact(open_directory: Path) -> str:
    """The URI of a file of the agent."""
    (open_directory / "artifact").write_text("fetched\n")
    return f"file://{open_directory}/artifact"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/work.sh").write_text("#!/bin/sh\necho $# of us; cat data; echo mine > own; cat own\n")
    (tmp_path / "code/work.sh").chmod(0o755)
    (tmp_path / "code/data").write_text("brought\n")
    return tmp_path / "code"


def begins_where_its_code_is(client: Client, code: Path, **more: Any) -> None:
    """Also in an image that names another directory; the files are the user's."""
    sent = upload(client, code)
    for image in ("placed:1", "plain:1"):
        job = run(client, None, image=image, argv=["./work.sh", "a b", "c"], upload=sent, gpus=0, **more)
        assert (job["state"], said(client, job)) == ("finished", "2 of us\nbrought\nmine\n"), job["message"]
    job = run(client, "pwd", image="placed:1", gpus=0, **more)
    assert said(client, job) == "/bin\n", "without code it begins where the image says"


def test_a_job_s_code_comes_into_an_image(client: Client, code: Path) -> None:
    begins_where_its_code_is(client, code)


@pytest.mark.parametrize("image", ["plain:1", None])
def test_fetched_file_is_in_the_sandbox(client: Client, artifact: str, image: str | None) -> None:
    job = run(client, "cat $MESOS_SANDBOX/artifact", image=image, gpus=0, fetch=[artifact])
    assert (job["state"], said(client, job)) == ("finished", "fetched\n"), job["message"]
    job = run(client, "true", image=image, gpus=0, fetch=["file:///nowhere"])
    assert job["state"] == "failed"
    assert str(job["message"]).startswith("could not fetch file:///nowhere: ")


def test_missing_image_fails_the_job(client: Client) -> None:
    job = run(client, "true", image="missing:1")
    assert job["state"] == "failed"
    assert "missing:1" in str(job["message"])


class _Lure(http.server.BaseHTTPRequestHandler):
    """Asks for a token of `server.realm`."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append(self.path)
        self.send_response(401)
        self.send_header("WWW-Authenticate", f'Bearer realm="{server.realm}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


def test_registry_cannot_redirect_requests_to_the_agent(open_directory: Path, images: Path) -> None:
    needs("cgroup2")
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Lure)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    given = {
        "MESOS_GPU_ISOLATION": "cgroup2",
        "MESOS_GPU_IMAGE_REGISTRY": f"http://127.0.0.1:{server.server_port}",
    }
    stack = Stack(
        open_directory / "lured", [NodeSpec(1)], images=images, devices="cgroup2", executor_environment=given
    )
    try:
        with stack as running, Client(running.url) as client:
            port = running.cluster.agents[0].port
            server.realm = f"http://127.0.0.1:{port}/logging/toggle?level=3&duration=1weeks"
            client.patience_s = 30
            wait_until("the node reports", client.gpus)
            job = run(client, "true", image="app:1", gpus=0)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert job["state"] == "failed", "it is the image's fault, and runs nowhere else"
    assert f"port {port} controls the cluster, and tasks may not reach it" in str(job["message"])
    assert server.seen == ["/v2/app/manifests/1"], "nothing of the agent's came back"


def test_exit_status_and_kill_of_an_image_job(client: Client) -> None:
    assert run(client, "exit 7")["exit_code"] == 7
    job = client.submit(
        {"name": "k", "image": IMAGE, "command": "trap 'echo saved; exit 4' TERM; echo r; while :; do sleep 0.05; done",
         "cpus": 0.1, "mem_mib": 64, "gpus": 1}
    )  # fmt: skip
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running" and said(client, job) == "r\n")
    client.kill(job["id"])
    wait_until("it is killed", lambda: client.job(job["id"])["state"] == "killed")
    assert said(client, job) == "r\nsaved\n"


def test_a_bomb_of_forks_ends_at_the_limit(client: Client) -> None:
    """The executor, which the limit would count, is out of it."""
    bomb = "i=0; while [ $i -lt 400 ] && sleep 600 & do i=$((i+1)); echo $i; done"
    job = run(client, f"({bomb}) > $MESOS_SANDBOX/made 2>/dev/null; tail -n 1 $MESOS_SANDBOX/made", gpus=0)
    assert MAX - 20 < int(said(client, job).split()[-1]) < MAX, job["message"]


def test_an_image_has_no_rights_and_changes_no_cgroup(client: Client) -> None:
    """Mesos mounts cgroups of the container there to be written, by root."""
    look = "grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status"
    files = "/sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/devices.allow /sys/fs/cgroup/*/pids.max"
    job = run(client, f"{look}; for f in {files}; do [ -w $f ] && echo $f; done; echo end", gpus=0)
    *rights, nnp = (line.split() for line in said(client, job).splitlines()[:4])
    assert {name: int(value, 16) for name, value in rights} == {"CapPrm:": 0, "CapEff:": 0, "CapAmb:": 0}
    assert nnp == ["NoNewPrivs:", "1"]
    assert said(client, job).splitlines()[4:] == ["end"]


def test_a_host_task_beside_it_is_denied_as_well(client: Client, nodes: Path) -> None:
    job = run(client, f"for n in 0 1 255; do cat {nodes}/$n; done 2>&1; true", image=None, gpus=0)
    assert said(client, job).count(DENIED) == 3
    job = run(client, f"for n in 0 1 255; do cat {nodes}/$n; done 2>&1; true", image=None, gpus=1)
    assert (said(client, job).count(DENIED), said(client, job).count(ALLOWED)) == (1, 2)


def test_an_image_outlives_its_agents_restart(stack: Stack, client: Client) -> None:
    job = submit(client, "echo begun; sleep 4; echo ended", gpus=0)
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    stack.cluster.agents[0].restart()
    wait_until("it has finished", lambda: client.job(job["id"])["state"] == "finished")
    assert client.job(job["id"])["launches"] == 1
    assert said(client, job) == "begun\nended\n"


# --- with shares of a card


@pytest.fixture(params=["mesos", *(pytest.param(name, marks=pytest.mark.long) for name in ("own", "docker"))])
def shared(
    stack: Stack,
    client: Client,
    data: Path,
    libraries: tuple[Path, dict[str, str]],
    request: pytest.FixtureRequest,
) -> Iterator[sharing.Sharing]:
    """Cards that are shared by tasks of the host and in images, also of a further engine, by parameter."""
    ways = ["nested", "host"]
    if request.param == "docker":
        request.getfixturevalue("engine")
    if request.param != "mesos":
        ways.append(request.param)
    yield sharing.Sharing(stack, client, data, libraries[0] / "client", ways)
    kill_all(client)


def test_a_share_in_an_image_is_kept_by_our_libraries(shared: sharing.Sharing) -> None:
    sharing.nested_gets_its_share(shared)


def test_a_strict_share_takes_no_image_with_a_libcuda_of_its_own(shared: sharing.Sharing) -> None:
    sharing.own_libcuda_is_refused(shared)


def test_metrics_have_the_use_of_a_shared_card_by_each_task(shared: sharing.Sharing) -> None:
    sharing.metrics_are_each_ones(shared)


@pytest.mark.parametrize("stack", ["cgroup2"], indirect=True)  # device rules play no part in it
def test_share_in_an_image_changes_no_limits_and_reaches_no_neighbour(shared: sharing.Sharing) -> None:
    sharing.attempts_are_refused(shared)


def test_image_jobs_leave_no_holdings_and_no_cgroups(stack: Stack, client: Client) -> None:
    run(client, "true")
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    wait_until("nothing is held", lambda: not ledger.holdings())
    runs = "mesos/agent-1/work/slaves/*/frameworks/*/executors/*/runs/*"
    containers = {path.name for path in stack.directory.glob(runs)}
    assert len(containers) > 2
    roots = [Path("/dev/mesos_gpu"), *(mount / OWN_ROOT for mount in mounted().values())]
    assert {path.name for root in roots for path in root.glob("*")}.isdisjoint(containers)


# --- by the Docker Engine


HUNGRY = "x=0123456789; while :; do x=$x$x; done"


def lacks_memory(client: Client, **more: str) -> None:
    job = run(client, HUNGRY, gpus=0, **more)
    assert re.fullmatch(r"out of memory: 64 MiB asked, \d+ used; ask for more with --mem", job["message"])
    assert (job["state"], job["exit_code"]) == ("failed", 137)


def keeps_its_output(client: Client, says: str, **more: str) -> None:
    """Whatever the task makes of the name that its output has where it can see it."""
    spoils = "rm stdout stderr; mkfifo stdout; ln -s /etc/passwd stderr"
    command = f"cd $MESOS_SANDBOX; echo said; {spoils}; sleep 1; echo on"
    job = run(client, command, gpus=0, **more)
    assert (job["state"], said(client, job)) == ("finished", "said\non\n"), job["message"]
    assert says in said(client, job, "stderr")


def lacks_disk(client: Client, **more: str) -> None:
    """8 MiB by doubling 16 bytes 19 times."""
    double = "x=0123456789abcdef; i=0; while [ $i -lt 19 ]; do x=$x$x; i=$((i+1)); done"
    job = run(client, f"{double}; echo $x > $MESOS_SANDBOX/data; sleep 600", gpus=0, disk_mib=4, **more)
    assert job["message"].startswith("out of disk: 4 MiB asked, 9 used in its sandbox"), job["message"]
    assert job["state"] == "failed"


def test_image_without_enough_memory_or_disk_fails_with_the_cause(client: Client) -> None:
    lacks_memory(client)
    lacks_disk(client)


def test_an_image_cannot_put_anything_in_place_of_its_output(client: Client) -> None:
    keeps_its_output(client, "")


@pytest.fixture(scope="module")
def unstarted_engine() -> Iterator[dockerd.Dockerd]:
    with contextlib.closing(dockerd.Dockerd(bridged=True)) as engine:
        yield engine


@pytest.fixture(scope="module")
def docker(open_directory: Path, data: Path, engine: dockerd.Dockerd) -> Iterator[Stack]:
    """A cluster whose agent knows nothing of images."""
    needs("cgroup1")
    volumes = open_directory / "volumes"
    driver_volume(volumes, DRIVER)
    given = {
        "MESOS_GPU_VOLUMES": str(volumes),
        "MESOS_GPU_DOCKER_SOCKET": str(engine.socket),
        ROOTS: str(data),
    }
    with Stack(open_directory / "docker", [NodeSpec(2)], executor_environment=given) as running:
        yield running


@pytest.mark.long
def test_docker_engine_gives_the_same_guarantees(docker: Stack, artifact: str) -> None:
    with Client(docker.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        look = f"{LOOK}; mknod /mnt/mesos/sandbox/n c 195 1 2>&1; id -u; cat artifact"
        job = run(client, f"cd $MESOS_SANDBOX; {look}", container_engine="docker", fetch=[artifact])
        assert job["state"] == "finished", job["message"]
        lines = said(client, job).splitlines()
        words = [ALLOWED, ALLOWED, CUDA_FILE, DENIED, "65534", "fetched"]
        assert [line.rpartition(": ")[2] for line in lines] == words
        other = run(client, "true", gpus=0)
        assert other["state"] == "failed"
        assert "--isolation needs" in str(other["message"])


@pytest.mark.long
def test_docker_engine_mounts_volumes_and_passes_arguments(docker: Stack, data: Path, code: Path) -> None:
    with Client(docker.url) as client:
        begins_where_its_code_is(client, code, container_engine="docker")
        sees_volumes(client, data, "/etc/weights", container_engine="docker", gpus=0)
        job = run(client, None, image="plain:1", args=["other", "words"], container_engine="docker", gpus=0)
        assert (job["state"], said(client, job)) == ("finished", "other words\n"), job["message"]


@pytest.mark.long
def test_docker_engine_limits_memory_and_disk_and_keeps_output(
    docker: Stack,
) -> None:
    with Client(docker.url) as client:
        lacks_memory(client, container_engine="docker")
        lacks_disk(client, container_engine="docker")
        keeps_its_output(client, "Operation not permitted", container_engine="docker")


@pytest.mark.long
def test_an_app_on_a_bridge(docker: Stack, data: Path) -> None:
    """An app on a bridge has a port 80, a port of the host that leads there, and what else of its container is
    Docker's."""
    (data / "models/index.html").write_text("served\n")
    app = {
        "id": "/web",
        "cmd": "env > $MESOS_SANDBOX/env; exec httpd -f -p 80 -h /srv",
        "cpus": 0.1,
        "mem": 64,
        "container": {
            "type": "DOCKER",
            "docker": {
                "image": "plain:1",
                "network": "BRIDGE",
                "portMappings": [{"containerPort": 80, "name": "web"}],
            },
            "volumes": [{"containerPath": "/srv", "hostPath": f"{data}/models", "mode": "RO"}],
        },
        "healthChecks": [
            {"protocol": protocol, "portIndex": 0, "intervalSeconds": 1, "delaySeconds": 0, "path": "/"}
            for protocol in ("HTTP", "MESOS_HTTP")
        ],
    }
    made = requests.post(f"{docker.url}/v2/apps", json=app, timeout=60)
    assert made.status_code == 201, made.text

    def served() -> dict[str, Any]:
        return requests.get(f"{docker.url}/v2/apps/web", timeout=60).json()["app"]  # type: ignore[no-any-return]

    wait_until("it is healthy", lambda: served()["tasksHealthy"] == 1)
    (task,) = served()["tasks"]
    (port,) = task["ports"]
    assert requests.get(f"http://127.0.0.1:{port}/", timeout=60).text == "served\n"
    (file,) = docker.directory.glob(
        f"mesos/agent-1/work/slaves/*/frameworks/*/executors/{task['id']}/runs/*-*/env"
    )
    env = dict(line.split("=", 1) for line in file.read_text().splitlines())
    names = ("HOST", "PORT", "PORT0", "PORT_80", "PORT_WEB", "PORTS")
    assert {name: env[name] for name in names} == {name: str(port) for name in names} | {"HOST": task["host"]}
    assert requests.delete(f"{docker.url}/v2/apps/web", timeout=60).status_code == 200


@pytest.mark.long
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
