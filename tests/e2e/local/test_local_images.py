"""Containers with Docker images on the embedded cluster, nested in an executor's, and the devices they may use."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.errors import Unavailable
from mesos_gpu.local import leftovers
from mesos_gpu.local.cluster import AgentSpec, Cluster, Devices, cgroup2
from tests.conftest import wait_until
from tests.doubles.images import busybox_layer, layer, save
from tests.e2e.local.test_local_cluster import Framework, assert_nothing_left, executor, needs, running

pytestmark = pytest.mark.cluster
APPLETS = ["cat", "dd", "echo", "env", "grep", "head", "id", "pwd", "sh", "sleep", "touch", "true"]
DENIED, NO_DRIVER = "Operation not permitted", "No such device or address"
LONG_S = f"7000.{os.getpid():07}"  # of a process that is looked for on the whole host
SHIFT = 256  # of an exit code in a wait status, wait(2)

#: Makes of the executor one that runs each task as a container nested in its own. TaskInfo.data: the call of the
#: agent's API, without the container's id, and lines for files of its own devices cgroup to write before.
NESTING = """
here = os.environ["MESOS_DIRECTORY"]

def devices_cgroup():
    with open("/proc/self/cgroup") as file:
        return "/sys/fs/cgroup/devices" + next(line.strip().split(":")[2] for line in file if ":devices:" in line)

def agent(kind, task_id, **content):
    content["container_id"] = {"value": task_id["value"], "parent": {"value": os.path.basename(here)}}
    response = call("", {"type": kind, kind.lower(): content})
    return response.status, response.read().decode()

def launch(task):
    threading.Thread(target=work, args=(task["task_id"], base64.b64decode(task["data"])), daemon=True).start()

def work(task_id, data):
    asked = json.loads(data)
    for name, line in asked["devices"]:
        with open(devices_cgroup() + "/devices." + name, "w") as file:
            file.write(line)
    status, answer = agent(asked["type"], task_id, **asked["content"])
    if status != 200:
        update(task_id, "TASK_FAILED", message=answer)
        return
    update(task_id, "TASK_RUNNING")
    while status != 200 or not answer:
        time.sleep(0.02)
        try:
            status, answer = agent("WAIT_CONTAINER", task_id)
        except (OSError, http.client.HTTPException):
            status = 0
    with open(f"{here}/containers/{task_id['value']}/stdout") as file:
        data = base64.b64encode(file.read().encode()).decode()
    state = "TASK_FINISHED" if json.loads(answer)["wait_container"]["exit_status"] == 0 else "TASK_FAILED"
    update(task_id, state, message=answer, data=data)

def kill(task_id):
    agent("KILL_CONTAINER", task_id, signal=15)
"""


@dataclass(frozen=True, slots=True)
class End:
    """What WAIT_CONTAINER said of a container, and its standard output; `refusal`: why there was none."""

    said: dict[str, Any]
    out: str = ""
    refusal: str = ""

    @classmethod
    def of(cls, status: Any) -> "End":
        message = status.get("message", "")
        if not message.startswith("{"):
            return cls({}, refusal=message)
        out = base64.b64decode(status.get("data", "")).decode()
        return cls(json.loads(message)["wait_container"], out)


class Nest:
    """A cluster, and a framework whose tasks are nested containers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.agent = cluster, cluster.agents[0]
        self.framework = Framework(cluster)
        self._command = executor(cluster.directory, NESTING)[0]
        self._count = 0

    def launch(
        self,
        command: str | dict[str, Any],
        image: str = "base:1",
        *,
        kind: str = "LAUNCH_CONTAINER",
        executor_id: str = "e",
        devices: Sequence[tuple[str, str]] = (),
        volumes: Sequence[tuple[Path, str, str]] = (),
        user: str = "root",
    ) -> Any:
        """Start a container; the task's first status. devices: allow or deny, and what; volumes: path on the
        host, path inside, RO or RW."""
        self._count += 1
        if isinstance(command, str):
            command = {"value": command}
        container = {
            "type": "MESOS",
            "mesos": {"image": {"type": "DOCKER", "docker": {"name": image}}},
            "volumes": [
                {
                    "mode": mode,
                    "container_path": inside,
                    "source": {"type": "HOST_PATH", "host_path": {"path": str(path)}},
                }
                for path, inside, mode in volumes
            ],
        }
        content = {"command": {"user": user, **command}, "container": container}
        data = json.dumps({"type": kind, "content": content, "devices": devices}).encode()
        self.framework.launch(self.agent, self._command, f"task-{self._count}", executor_id, data)
        return self.status()

    def status(self, *unwanted: str) -> Any:
        """The next status of the latest task that is not in one of these states. Others may come again."""
        while True:
            status = self.framework.status()
            if status["task_id"]["value"] == f"task-{self._count}" and status["state"] not in unwanted:
                return status

    def sandbox(self) -> Path:
        """The sandbox of the latest container."""
        return next(self.agent.directory.glob(f"work/slaves/**/containers/task-{self._count}"))

    def executors(self, executor_id: str) -> list[int]:
        """Processes of an executor."""
        want = {f"MESOS_EXECUTOR_ID={executor_id}", f"MESOS_FRAMEWORK_ID={self.framework.id}"}
        pids = []
        for process in leftovers.processes(leftovers.own(self.cluster.directory)):
            with contextlib.suppress(OSError):
                if want <= set(Path(f"/proc/{process}/environ").read_text().split("\0")):
                    pids.append(process)
        return pids

    def end(self) -> End:
        """How the latest container ends."""
        return End.of(self.status("TASK_RUNNING"))

    def run(self, command: str | dict[str, Any], image: str = "base:1", **more: Any) -> End:
        """Start a container and wait for its end."""
        status = self.launch(command, image, **more)
        return self.end() if status["state"] == "TASK_RUNNING" else End.of(status)


def static_busybox() -> Path:
    """A shell without libraries, for images."""
    path = shutil.which("busybox")
    if path is None or subprocess.run(["ldd", path], capture_output=True, check=False).returncode == 0:
        pytest.skip("no static busybox (Debian: busybox-static)")
    return Path(path)


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    needs("linux")
    directory, root = open_directory / "images", busybox_layer(static_busybox(), APPLETS)
    save(directory, "base:1", [root], {"Env": ["PATH=/bin"]})
    config = {
        "Env": ["PATH=/bin", "GREETING=hello"],
        "WorkingDir": "/opt",
        "Entrypoint": ["/bin/echo", "entry"],
        "Cmd": ["cmd"],
    }
    layers = [root, layer({"marker": b"layer 2\n", "opt": None})]
    save(directory, "registry.example.com:5000/team/demo:1", layers, config)
    return directory


@pytest.fixture(scope="module")
def nest(open_directory: Path, images: Path) -> Iterator[Nest]:
    directory = open_directory / "mesos" / "cluster"
    with unstarted(directory, images, "mesos") as cluster:
        nest = Nest(cluster)
        with nest.framework:
            yield nest
        assert leftovers.mounts(directory)
        cluster.stop(grace_s=0)
    assert_nothing_left(directory)


@pytest.fixture(scope="module")
def node(open_directory: Path) -> Path:
    """A device node of the first GPU; no driver is behind it here, or a real one is."""
    path = open_directory / "nvidia0"
    os.mknod(path, 0o20666, os.makedev(195, 0))
    path.chmod(0o666)
    return path


def test_an_image_of_two_layers_with_its_environment(nest: Nest) -> None:
    end = nest.run("cat /marker; echo $GREETING; pwd", "registry.example.com:5000/team/demo:1")
    assert end == End({"exit_status": 0}, "layer 2\nhello\n/opt\n")


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ({}, "entry cmd\n"),
        ({"arguments": ["and", "more"]}, "entry and more\n"),
        ({"value": "/bin/cat", "arguments": ["cat", "/marker"]}, "layer 2\n"),
    ],
)
def test_an_images_entrypoint(nest: Nest, command: dict[str, Any], out: str) -> None:
    assert nest.run({"shell": False, **command}, "registry.example.com:5000/team/demo:1").out == out


@pytest.mark.parametrize("kind", ["LAUNCH_CONTAINER", "LAUNCH_NESTED_CONTAINER"])
def test_container_has_its_exit_status(nest: Nest, kind: str) -> None:
    assert nest.run("exit 3", kind=kind).said == {"exit_status": 3 * SHIFT}


def test_agent_names_the_cause_of_a_refused_container(nest: Nest) -> None:
    assert "Failed to find archive for image 'absent:1'" in nest.run("true", "absent:1").refusal
    volume = (Path("/no/such"), "/x", "RO")
    assert "Path '/no/such' in HOST_PATH volume does not exist" in nest.run("true", volumes=[volume]).refusal
    assert "No such user 'nosuch'" in nest.run("true", user="nosuch").refusal


def test_a_user_writes_to_the_sandbox_only(nest: Nest) -> None:
    look = "id -un; pwd; touch x && echo $MESOS_SANDBOX/*; touch /x 2>&1; grep NoNewPrivs /proc/self/status"
    out = nest.run(look, user="nobody").out
    sandbox = "/mnt/mesos/sandbox"
    files = " ".join(f"{sandbox}/{name}" for name in ("stderr", "stdout", "x"))
    assert out == f"nobody\n{sandbox}\n{files}\ntouch: /x: Permission denied\nNoNewPrivs:\t1\n"


def test_a_read_only_volume(nest: Nest, open_directory: Path) -> None:
    volume = open_directory / "driver"
    volume.mkdir()
    (volume / "version").write_text("535\n")
    command = "cat /usr/local/nvidia/version; touch /usr/local/nvidia/x 2>&1"
    end = nest.run(command, volumes=[(volume, "/usr/local/nvidia", "RO")])
    assert end.out == "535\ntouch: /usr/local/nvidia/x: Read-only file system\n"
    assert [path.name for path in volume.iterdir()] == ["version"]


def test_container_shares_the_devices_cgroup_of_its_executor(nest: Nest, node: Path) -> None:
    """Whose rules are the executor's to write, also while the container runs."""
    look, volumes = (
        "head -c 0 /dev/nvidia0 2>&1; grep :devices: /proc/self/cgroup",
        [(node, "/dev/nvidia0", "RW")],
    )
    denied = nest.run(look, volumes=volumes).out.splitlines()
    assert DENIED in denied[0]
    top = f"/{nest.agent.cgroup_root}/"
    assert denied[1].partition(":devices:")[2].startswith(top)
    assert denied[1].count("/") == 2  # not a cgroup below the executor's
    allowed = nest.run(look, volumes=volumes, devices=[("allow", "c 195:0 rw")]).out.splitlines()
    assert DENIED not in allowed[0]
    assert allowed[0].endswith(NO_DRIVER)
    again = nest.run(look, volumes=volumes, devices=[("deny", "c 195:0 rw")]).out.splitlines()
    assert again == denied


def test_an_image_starts_with_no_device_allowed(nest: Nest) -> None:
    """The agent makes the nodes of /dev, so the container's cgroup need not let it."""
    end = nest.run("echo alive; cat /dev/null 2>&1", executor_id="bare", devices=[("deny", "a")])
    assert end.out == f"alive\ncat: can't open '/dev/null': {DENIED}\n"


def test_container_is_killed_with_a_signal(nest: Nest) -> None:
    status = nest.launch("trap 'echo term; exit 7' TERM; echo up; sleep 1000 & wait")
    wait_until("the trap", (nest.sandbox() / "stdout").read_text)
    nest.framework.call("KILL", task_id=status["task_id"])
    assert nest.end() == End({"exit_status": 7 * SHIFT}, "up\nterm\n")


def test_container_survives_its_agent(nest: Nest) -> None:
    nest.launch("until cat go; do sleep 0.05; done; exit 5")
    nest.agent.restart()
    (nest.sandbox() / "go").touch()
    assert nest.end().said == {"exit_status": 5 * SHIFT}


def test_container_ends_with_its_executor(nest: Nest) -> None:
    nest.launch(f"sleep {LONG_S}", executor_id="killed")
    assert running(LONG_S)
    for process in nest.executors("killed"):
        os.kill(process, signal.SIGKILL)
    assert nest.status("TASK_RUNNING")["message"] == "Executor terminated"
    assert running(LONG_S) == []


def test_memory_limit_is_named_in_the_message(nest: Nest) -> None:
    nest.launch("dd if=/dev/zero of=/dev/null bs=300M count=1; sleep 1000", executor_id="hungry")
    # the container with the limit is the executor's: it ends too, before or after it reports
    assert "Memory limit exceeded: Requested: 64MB" in nest.status("TASK_RUNNING")["message"]


def unstarted(directory: Path, images: Path, devices: Devices) -> Cluster:
    directory.parent.mkdir(mode=0o755)
    try:
        return Cluster(directory, [AgentSpec({"cpus": 8, "mem": 4096})], images=images, devices=devices)
    except Unavailable as error:
        pytest.skip(str(error))


def test_containers_have_cgroups_v2_and_nested_ones_share_them(open_directory: Path, images: Path) -> None:
    directory = open_directory / "unified" / "cluster"
    with unstarted(directory, images, "cgroup2") as cluster:
        nest, containers = Nest(cluster), []
        with nest.framework:
            for executor_id in ("one", "two", "two"):
                seen = [nest.run("cat /proc/self/cgroup", executor_id=executor_id).out]
                containers.append(nest.sandbox().parent.parent.name)
                seen += [Path(f"/proc/{pid}/cgroup").read_text() for pid in nest.executors(executor_id)]
                assert len(seen) > 1
                assert all(f"0::/{nest.agent.cgroup_root}/{containers[-1]}\n" in text for text in seen)
            assert containers[0] != containers[1] == containers[2]
            for pid in nest.executors("one"):
                os.kill(pid, signal.SIGKILL)
            wait_until("the end of the executor", lambda: not nest.executors("one"))
            nest.run("true", executor_id="three")
            containers.append(nest.sandbox().parent.parent.name)
        mount = cgroup2()
        assert mount is not None
        top = mount / nest.agent.cgroup_root
        assert {path.name for path in top.iterdir() if path.is_dir()} == set(containers[2:])
    assert_nothing_left(directory)


OWNER = """
import sys, time
from pathlib import Path
from mesos_gpu.local.cluster import AgentSpec, Cluster
directory, port, images, devices = sys.argv[1:]
Cluster(Path(directory), [AgentSpec()], master_port=int(port), images=Path(images), devices=devices).start()
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("devices", [pytest.param("mesos", marks=pytest.mark.long), "cgroup2"])
def test_mounts_and_cgroups_of_a_killed_owner_are_removed(
    open_directory: Path, images: Path, devices: Devices
) -> None:
    """Also when its agent was killed before, which leaves the container to nobody."""
    directory = open_directory / f"killed-{devices}" / "cluster"
    cluster = unstarted(directory, images, devices)
    words = [str(directory), str(cluster.master.port), str(images), devices]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), *words], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        nest = Nest(cluster)
        with nest.framework:
            assert nest.launch(f"sleep {LONG_S}")["state"] == "TASK_RUNNING"
        record = leftovers.Record.load(directory)
        assert record is not None
        os.kill(record.processes["agent-1"].pid, signal.SIGKILL)
        owner.kill()
    assert running(LONG_S)
    assert len(leftovers.mounts(directory)) > 1
    Cluster.clean_up(directory)
    assert running(LONG_S) == []
    assert_nothing_left(directory)
