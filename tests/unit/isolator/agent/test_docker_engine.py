"""What is asked of a Docker Engine, what it may answer, and what is never asked. Real containers: tests/kernel."""

import json
import os
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.agent.docker_engine import ContainerSettings, DockerEngine, creation
from isolator.agent.docker_output import Output
from isolator.agent.http import HttpConnection
from isolator.confinement.enclosure import Enclosure
from isolator.confinement.fence import Fence
from isolator.devices.cgroups import Cgroup
from isolator.host.control_ports import Denial
from isolator.runs.docker_run import DockerRun
from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment

VERSION = b'{"ApiVersion": "1.41"}'


def answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


Scripted = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    """Start a server that gives these answers, one to a request, and closes; its socket and what it was asked."""
    servers: list[socketserver.BaseServer] = []

    def start(*answers: bytes) -> tuple[str, list[str]]:
        left, asked = list(answers), []

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while left and (line := self.rfile.readline()):
                    asked.append(line.decode().rpartition(" ")[0])
                    length = 0
                    while (field := self.rfile.readline().strip()) != b"":
                        if field.startswith(b"Content-Length: "):
                            length = int(field.split()[1])
                    self.rfile.read(length)
                    self.wfile.write(left.pop(0))

        path = str(tmp_path / f"{len(servers)}.sock")
        server = socketserver.ThreadingUnixStreamServer(path, Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return path, asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_container_has_nothing_that_it_was_not_given() -> None:
    wish = ContainerSettings(
        "app", "1000:1000", "train", env={"A": "b=c"}, devices=(("/n/nvidia3", "/dev/nvidia3", "rw"),)
    )
    body = creation(wish)
    assert (body["User"], body["Env"], body["Entrypoint"]) == (
        "1000:1000",
        ["A=b=c"],
        ["/bin/sh", "-c", "train"],
    )
    host = body["HostConfig"]
    assert host["Runtime"] == "runc"
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == host["DeviceRequests"] == host["DeviceCgroupRules"] == host["Mounts"] == []
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Devices"] == [
        {"PathOnHost": "/n/nvidia3", "PathInContainer": "/dev/nvidia3", "CgroupPermissions": "rw"}
    ]
    assert not host["Privileged"] | host["Init"] | host["AutoRemove"]
    assert host["ShmSize"] > 64 << 20
    assert "CgroupParent" not in host


@pytest.mark.parametrize("user", ["0:0", "0:1000", "00:5"])
def test_root_of_a_container_makes_no_nodes(user: str) -> None:
    held = creation(ContainerSettings("app", user))["HostConfig"]["CapAdd"]
    assert "CHOWN" in held
    assert not {"MKNOD", "SYS_ADMIN", "NET_RAW", "NET_ADMIN", "SETPCAP", "SETFCAP", "SYS_CHROOT"} & set(held)


def test_a_bridge_with_ports() -> None:
    bindings = (
        PortBinding(80, 31000, "tcp"),
        PortBinding(80, 31001, "tcp"),
        PortBinding(31002, 31002, "udp"),
    )
    body = creation(ContainerSettings("app", "1:1", bindings=bindings))
    host = body["HostConfig"]
    assert host["NetworkMode"] == "bridge"
    assert body["ExposedPorts"] == {"80/tcp": {}, "31002/udp": {}}
    assert host["PortBindings"] == {
        "80/tcp": [{"HostPort": "31000"}, {"HostPort": "31001"}],
        "31002/udp": [{"HostPort": "31002"}],
    }
    none = creation(ContainerSettings("app", "1:1", bindings=()))
    assert (none["HostConfig"]["NetworkMode"], none["HostConfig"]["PortBindings"]) == ("bridge", {})
    assert creation(ContainerSettings("app", "1:1"))["HostConfig"]["NetworkMode"] == "host"


@pytest.mark.parametrize(("bindings", "binds"), [(None, False), ((), True)])
def test_on_a_bridge_any_port_may_be_listened_on(
    bindings: tuple[PortBinding, ...] | None, binds: bool
) -> None:
    """A bridge is not the host's network; there a listener could be taken for an agent that is being restarted."""
    fence = Fence((Denial(5051),), Cgroup("cgroup2", Path("/c"), own=True))
    made = Enclosure("c", isolated=True, cgroup=None, devices=(), extra=(), gpu_major=195, fence=fence)
    run = DockerRun(
        Assignment("job", 0, image="app", bindings=bindings), Inventory(), {"MESOS_DIRECTORY": "/c"}
    )
    adapted = run.adapt(made).fence
    assert adapted is not None
    assert (adapted.grant is None) is binds


def test_arguments_are_the_entrypoints() -> None:
    body = creation(ContainerSettings("app", "1:1", args=("-v",)))
    assert "Entrypoint" not in body
    assert body["Cmd"] == ["-v"]


def test_options_become_fields_of_the_creation() -> None:
    options = DockerOptions(shm_bytes=1, ulimits=(Ulimit("core", 0, -1),), hostname="h", directory="/src")
    body = creation(ContainerSettings("app", "1:1", mem_mib=100, options=options))
    assert (body["Hostname"], body["WorkingDir"], body["HostConfig"]["ShmSize"]) == ("h", "/src", 1)
    assert body["HostConfig"]["Ulimits"] == [{"Name": "core", "Soft": 0, "Hard": -1}]


def test_options_of_the_containers_own() -> None:
    options = DockerOptions(
        hosts=("db:10.0.0.1",), dns=("10.0.0.53",), init=True, stop_timeout_s=0, log_driver="local",
        log_options={"max-size": "1m"},
    )  # fmt: skip
    body = creation(ContainerSettings("app", "1:1", options=options))
    host = body["HostConfig"]
    assert (host["ExtraHosts"], host["Dns"], host["Init"]) == (["db:10.0.0.1"], ["10.0.0.53"], True)
    assert (body["StopTimeout"], host["LogConfig"]) == (0, {"Type": "local", "Config": {"max-size": "1m"}})
    plain = creation(ContainerSettings("app", "1:1"))
    assert "StopTimeout" not in plain
    assert plain["HostConfig"]["LogConfig"]["Type"] == "none"


def test_limits_are_those_of_the_wish() -> None:
    host = creation(ContainerSettings("app", "1:1", mem_mib=100, cpus=1.5, cgroup_parent="/mesos/x"))[
        "HostConfig"
    ]
    assert host["Memory"] == host["MemorySwap"] == host["ShmSize"] == 100 << 20
    assert (host["CpuShares"], host["CgroupParent"]) == (1536, "/mesos/x")


def test_an_image_cannot_name_cgroups_to_remove() -> None:
    """Ours is written even when there are none, so that it covers the image's label."""
    wish = ContainerSettings("app", "1:1", labels={"mesos_gpu.cgroups": '["/sys/fs/cgroup/cpu/mesos"]'})
    assert json.loads(creation(wish)["Labels"]["mesos_gpu.cgroups"]) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user": "nobody"}, "is not uid:gid"),
        ({"user": "1000"}, "is not uid:gid"),
        ({"user": ""}, "is not uid:gid"),
        ({"command": "a", "argv": ("b",)}, "not both"),
        ({"devices": (("/dev/null", "dev/null", "rw"),)}, "nothing can be mounted at 'dev/null'"),
        ({"binds": (("/tmp", "/dev", True),)}, "nothing can be mounted at '/dev'"),
        ({"binds": (("/tmp", "/tmp/..", True),)}, "nothing can be mounted at '/tmp/..'"),
    ],
)
def test_wishes_that_cannot_be(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        ContainerSettings(**{"image": "app", "user": "1:1", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../images", "a/b", "a?force=1", "", "a\r\nX: y"])
def test_names_cannot_change_the_request(name: str) -> None:
    engine = DockerEngine("/nowhere")
    for ask in (engine.start, engine.remove, engine.wait, engine.attach):
        with pytest.raises(BadConfiguration, match="cannot name a container"):
            ask(name)


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [
        ("cuda", "cuda:latest"),
        ("host:5000/cuda", "host:5000/cuda:latest"),
        ("host:5000/cuda:12", "host:5000/cuda:12"),
        ("a&tag=b", "a%26tag%3Db:latest"),
        ("cuda@sha256:ab", "cuda@sha256:ab"),
    ],
)
def test_docker_pull_asks_for_one_image(scripted: Scripted, name: str, asked_for: str) -> None:
    """Without a tag the engine would fetch all of them."""
    path, asked = scripted(answer(VERSION), answer(b'{"status": "x"}\n'))
    DockerEngine(path).pull(name)
    assert asked[1] == f"POST /v1.41/images/create?fromImage={asked_for}"


def test_a_pull_that_breaks_is_an_error(scripted: Scripted) -> None:
    path, _ = scripted(answer(VERSION), answer(b'{"status": "x"}\n{"error": "no space left"}\n'))
    with pytest.raises(MesosGpuError, match="image cuda could not be fetched: no space left"):
        DockerEngine(path).pull("cuda")


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadConfiguration), (404, NotFound), (409, Conflict), (500, MesosGpuError)]
)
def test_refusals_keep_the_engines_words(scripted: Scripted, status: int, kind: type[MesosGpuError]) -> None:
    path, _ = scripted(answer(VERSION), answer(b'{"message": "because"}', status))
    with pytest.raises(kind, match="because"):
        DockerEngine(path).start("task")


@pytest.mark.parametrize(
    "answers",
    [
        [answer(b'{"ApiVersion": "1.39"}')],
        [answer(b"{}")],
        [answer(b"[]")],
        [answer(b"hello")],
        [b"SSH-2.0-x\r\n\r\n"],
        [answer(VERSION), b""],
        [answer(VERSION), answer(b"{")],
        [answer(VERSION), answer(b"{}")],
    ],
    ids=[
        "old",
        "no version",
        "a list",
        "no JSON",
        "no HTTP",
        "broke off",
        "half an answer",
        "another answer",
    ],
)
def test_docker_answers_of_another_server_are_refused(scripted: Scripted, answers: list[bytes]) -> None:
    path, _ = scripted(*answers)
    with pytest.raises(Unavailable, match=r"Docker Engine"):
        DockerEngine(path).facts()


def test_answers_without_a_body(scripted: Scripted) -> None:
    path, _ = scripted(
        b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
    )
    connection = HttpConnection(path, 10)
    assert [connection.request("POST", "/x", b"", {}).read() for _ in range(2)] == [b"", b""]
    connection.close()


def test_frames_of_any_length_are_read(scripted: Scripted, tmp_path: Path) -> None:
    """Frames are of any length, also none, and one breaks off."""

    def frame(stream: int, data: bytes, length: int | None = None) -> bytes:
        return bytes([stream, 0, 0, 0]) + (len(data) if length is None else length).to_bytes(4, "big") + data

    big = os.urandom(200_000)
    frames = frame(1, b"one") + frame(2, b"") + frame(2, big) + frame(1, b"two") + frame(1, b"thr", 5)
    path, _ = scripted(b"HTTP/1.1 200 OK\r\n\r\n" + frames)
    connection = HttpConnection(path, 10)
    response = connection.request("POST", "/attach", b"", {})
    output = Output(lambda: (connection, response), lambda: False)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        output.copy(out.fileno(), err.fileno())
    assert (tmp_path / "out").read_bytes() == b"onetwothr"
    assert (tmp_path / "err").read_bytes() == big


def test_an_output_that_is_not_wanted(scripted: Scripted) -> None:
    path, _ = scripted(b"HTTP/1.1 200 OK\r\n\r\n")
    connection = HttpConnection(path, 10)
    response = connection.request("POST", "/attach", b"", {})
    output = Output(lambda: (connection, response), lambda: True)
    output.close()
    output.copy(1, 2)  # returns at once


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "unauthorized: authentication required", NotFound),
        (403, "denied: requested access to the resource is denied", NotFound),
        (404, "manifest unknown", NotFound),
        (500, 'Head "https://r/v2/a/manifests/1": no basic auth credentials', NotFound),
        (500, "Get https://r/v2/: dial unix /run/proxy.sock: connect: permission denied", Unavailable),
        (500, "Get https://r/v2/: dial tcp 10.0.4.1:401: connect: connection refused", Unavailable),
        (500, "toomanyrequests: You have reached your unauthenticated pull rate limit", Unavailable),
        (503, "down", Unavailable),
    ],
)
def test_docker_engine_tells_a_registry_that_refuses_from_one_that_is_down(
    scripted: Scripted, status: int, message: str, kind: type[MesosGpuError]
) -> None:
    path, asked = scripted(answer(VERSION), answer(json.dumps({"message": message}).encode(), status))
    with pytest.raises(kind, match=re.escape(message)):
        DockerEngine(path).shown_digest("r/a:1", "bG9naW4=")
    assert asked[1] == "GET /v1.41/distribution/r/a:1/json"
