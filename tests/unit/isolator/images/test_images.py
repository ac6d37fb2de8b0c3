"""Reading what images say: archives in both layouts, Debian's docker-registry, tokens, an agent's flags."""

import contextlib
import http.server
import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import pytest

from isolator.agent.flags import flags_of
from isolator.host.control_ports import Denial, metadata_denials
from isolator.images.login import Login
from isolator.images.reach import Reach
from isolator.images.reference import Reference
from isolator.images.registry import DEFAULT_REGISTRY, Refused
from isolator.images.source import read_config, registry_of
from mesos_gpu.errors import Damaged, NotFound, Unavailable
from mesos_gpu.local.own_ports import free_port
from tests import registries
from tests.doubles.images import Link, busybox_layer, layer, save
from tests.registries import push, push_manifest

CUDA = json.loads((Path(__file__).parents[3] / "data/cuda-image/config.json").read_text())
CONFIG = {
    "Env": ["PATH=/bin", "OPTIONS=a=b", "EMPTY="],
    "Entrypoint": ["/bin/sh", "-c"],
    "Cmd": ["echo hello"],
    "User": "nobody:nogroup",
    "Labels": {"com.nvidia.volumes.needed": "nvidia_driver"},
}
DIGEST = "sha256:" + "0" * 64


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar)
        return {name: file.read() for name, file in files if file}


@pytest.mark.parametrize(
    ("name", "host", "repository", "reference"),
    [
        ("busybox", "", "busybox", "latest"),
        ("team/app:1.0-Beta_2", "", "team/app", "1.0-Beta_2"),
        ("localhost/app", "localhost", "app", "latest"),
        ("reg.example:5000/a/b:1", "reg.example:5000", "a/b", "1"),
        (f"{'a' * 63}.{'b.' * 94}c:65535/x", f"{'a' * 63}.{'b.' * 94}c:65535", "x", "latest"),
        (f"a@{DIGEST}", "", "a", DIGEST),
        (f"nvcr.io/a:1@{DIGEST}", "nvcr.io", "a", DIGEST),
    ],
)
def test_names_are_read_as_docker_reads_them(name: str, host: str, repository: str, reference: str) -> None:
    assert Reference.of(name) == Reference(host, repository, reference)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/app", "../app", "a/../b", "./a", "a:b/c", "a:..", "A", "a@sha256:1", "-a.b/c", "a b", "a\n", "a:1:2",
     "a..b:5000/x", f"{'a' * 64}.b/x", f"{'a.' * 126}aa/x", "a-.b/x", "localhost:\u0663/x", "a:0/x", "a:65536/x",
     f"a:{'1' * 5000}/x"],
)  # fmt: skip
def test_image_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match="not the name of an image"):
        read_config(name, registry=str(tmp_path))


@pytest.mark.parametrize("name", ["app", "app:1", "reg.example:5000/team/app:1"])
@pytest.mark.parametrize("layout", ["both", "v1", "v2"])
def test_archives_of_every_layout_are_read(tmp_path: Path, name: str, layout: str) -> None:
    path = save(tmp_path, name, [layer({"etc": None}), layer({"etc/a": b"1"})], CONFIG)
    assert path == tmp_path / f"{name}.tar"
    dropped = {"both": (), "v1": ("manifest.json",), "v2": ("repositories", "/json")}[layout]
    files = {k: v for k, v in members(path).items() if not k.endswith(dropped or "?")}
    with tarfile.open(path, "w") as tar:
        for member, data in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    config = read_config(name, registry=f"file://{tmp_path}")
    assert config.env == {"PATH": "/bin", "OPTIONS": "a=b", "EMPTY": ""}
    assert (config.entrypoint, config.cmd) == (("/bin/sh", "-c"), ("echo hello",))
    assert (config.user, config.labels) == ("nobody:nogroup", CONFIG["Labels"])


def test_layers_name_their_parents_and_differ_with_the_configuration(tmp_path: Path) -> None:
    layers = [layer({"a": b"1", "b": Link("a")}), layer({"c": None})]
    tops = []
    for number, config in enumerate((CONFIG, CUDA)):
        files = members(save(tmp_path, f"app:{number}", layers, config))
        top = json.loads(files["repositories"])["app"][str(number)]
        below = json.loads(files[f"{top}/json"])["parent"]
        assert "parent" not in json.loads(files[f"{below}/json"])
        assert [files[f"{ident}/layer.tar"] for ident in (below, top)] == layers
        tops += [top, below]
    assert len(set(tops)) == 4


def test_a_layer_of_busybox_has_links_and_directories(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF")
    with tarfile.open(fileobj=io.BytesIO(busybox_layer(program, ["sh", "cat"]))) as tar:
        assert tar.getmember("bin/sh").linkname == "busybox"
        assert tar.getmember("proc").isdir()
        assert tar.getmember("bin/busybox").mode == 0o755


def test_image_without_a_configuration(tmp_path: Path) -> None:
    save(tmp_path, "bare:1", [layer({})])
    config = read_config("bare:1", registry=str(tmp_path))
    assert (config.labels, config.env, config.entrypoint, config.cmd, config.user) == ({}, {}, (), (), "")


def test_an_absent_archive_says_how_to_save_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        read_config("team/app:1", registry=str(tmp_path))
    assert f"{tmp_path}/team/app:1.tar does not exist" in caught.value.what
    assert caught.value.remedy == f"docker save -o {tmp_path}/team/app:1.tar team/app:1"


def test_archive_of_another_image(tmp_path: Path) -> None:
    save(tmp_path, "other:1", [layer({})]).rename(tmp_path / "app:1.tar")
    with pytest.raises(NotFound, match="has no image app:1"):
        read_config("app:1", registry=str(tmp_path))


@pytest.mark.parametrize("name", [f"{'a' * 255}:1", "app.tar/x"])
def test_name_that_no_file_has_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "app.tar").touch()
    with pytest.raises(NotFound, match="there is no image"):
        read_config(name, registry=str(tmp_path))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a tar" * 200,
        layer({"repositories": b"{"}),
        layer({"repositories": b'["app"]'}),
        layer({"repositories": b'{"app": {"1": "gone"}}'}),
        layer({"repositories": b'{"app": {"1": "x"}}', "x/json": b"[]"}),
        layer({"repositories": b'{"app": {"1": "x"}}', "x/json": b'{"config": {"Env": 3}}'}),
        layer({"repositories": b'{"app": {"1": "x"}}', "x/json": b'{"config": {"Labels": [1]}}'}),
        layer({"manifest.json": b'[{"RepoTags": ["app:1"], "Config": "gone"}]'}),
    ],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "app:1.tar").write_bytes(data)
    with pytest.raises(Damaged):
        read_config("app:1", registry=str(tmp_path))


def test_an_unreadable_archive_says_why(tmp_path: Path) -> None:
    (tmp_path / "app:1.tar").mkdir()
    with pytest.raises(Unavailable, match="cannot be read: Is a directory"):
        read_config("app:1", registry=str(tmp_path))


# --- registries


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """http://HOST:PORT of a real registry."""
    if why := registries.missing():
        pytest.skip(why)
    with registries.registry(tmp_path_factory.mktemp("registry")) as running:
        yield running.url


def test_a_registry_gives_the_configuration_of_an_image(registry: str) -> None:
    manifest = push(registry, "team/cuda", "12.4.1", CUDA)
    config = read_config("team/cuda:12.4.1", registry=registry)
    assert config.env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert config.cmd == ("/bin/bash",)
    assert read_config(f"team/cuda@{manifest['digest']}", registry=registry) == config
    host = registry.removeprefix("http://")
    assert read_config(f"{host}/team/cuda:12.4.1", registry=registry) == config


def test_registry_with_a_list_of_platforms(registry: str) -> None:
    arm = push(registry, "many", "arm", CONFIG)
    amd = push(registry, "many", "amd", CUDA)
    entries = [
        arm | {"platform": {"os": "linux", "architecture": "arm64"}},
        amd | {"platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json"}
    push_manifest(registry, "many", "all", index | {"manifests": entries})
    push_manifest(registry, "many", "arm-only", index | {"manifests": entries[:1]})
    assert read_config("many:all", registry=registry).cmd == ("/bin/bash",)
    with pytest.raises(NotFound, match="many is not made for linux/amd64"):
        read_config("many:arm-only", registry=registry)


def test_registry_without_the_image(registry: str) -> None:
    with pytest.raises(NotFound, match="there is no image team/none:1 at http"):
        read_config("team/none:1", registry=registry)


def test_a_registry_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"cannot be read: .*refused"):
        read_config("app", registry=f"http://127.0.0.1:{free_port()}", timeout_s=5)


class _Front(http.server.BaseHTTPRequestHandler):
    """Asks for a token as Docker's hub does, then sends to what is behind it. `server.behind`: its address."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/token?"):
            self._answer(200, json.dumps(server.token).encode())
        elif self.path.startswith("/behind/"):
            self._answer(307, header=("Location", server.behind + self.path.removeprefix("/behind")))
        elif self.headers.get("Authorization") == "Bearer t0ken":
            self._answer(307, header=("Location", "/behind" + self.path))
        else:
            challenge = f'Bearer realm="{server.url}/token",service="it",scope="repository:app:pull"'
            self._answer(401, header=("WWW-Authenticate", challenge))

    def _answer(self, status: int, body: bytes = b"", header: tuple[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in filter(None, [header]):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def front() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Front)
    server.url, server.seen, server.token = f"http://127.0.0.1:{server.server_port}", [], {"token": "t0ken"}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_token_for_everybody(registry: str, front: Any) -> None:
    push(registry, "app", "1", CONFIG)
    front.behind = registry
    assert read_config("app:1", registry=front.url).user == "nobody:nogroup"
    asked = [urlsplit(path).query for path, _ in front.seen if path.startswith("/token")]
    assert asked == ["service=it&scope=repository%3Aapp%3Apull"], "asked once, with what the challenge says"
    behind = [authorization for path, authorization in front.seen if path.startswith("/behind")]
    assert behind == [None, None], "the token stays with the host that asked for it"


@pytest.mark.parametrize("token", [{}, {"token": "wrong"}, {"access_token": "wrong"}])
def test_a_private_image_is_not_shown(front: Any, token: Any) -> None:
    front.token = token
    with pytest.raises(Refused, match=r"does not show app:1 at .* without a login: 401"):
        read_config("app:1", registry=front.url)


class _Lure(http.server.BaseHTTPRequestHandler):
    """Sends whoever asks to `server.target`, by `server.by`."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append(self.path)
        if server.by == "realm":
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="{server.target}"')
        else:
            self.send_response(307)
            self.send_header("Location", server.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Something on this host that nobody should connect to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("by", ["realm", "redirect"])
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "nowhere.invalid"]
)
def test_no_registry_has_a_control_port_asked(front: Any, silent: socket.socket, by: str, host: str) -> None:
    """This process is root and behind no fence; the path is the registry's to choose."""
    port = silent.getsockname()[1]
    front.RequestHandlerClass, front.by = _Lure, by
    front.target = f"http://{host}:{port}/logging/toggle?level=3&duration=1weeks"
    with pytest.raises(NotFound) as caught:
        read_config("app:1", registry=front.url, denied=(Denial(port),), timeout_s=20)
    assert front.url in caught.value.what
    assert f"refers to {front.target}" in caught.value.what
    assert f"port {port} controls the cluster, and tasks may not reach it" in caught.value.what
    assert len(front.seen) == 1, "nothing goes back to the registry"


@pytest.mark.parametrize("by", ["realm", "redirect"])
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/latest"]
)
def test_no_registry_has_its_readers_link_asked(front: Any, by: str, target: str) -> None:
    front.RequestHandlerClass, front.by, front.target = _Lure, by, target
    with pytest.raises(
        NotFound, match=r"169\.254\.169\.254: a link-local address, where that registry is not"
    ):
        read_config("app:1", registry=front.url, timeout_s=20)


@pytest.mark.parametrize(
    "target",
    [
        "https://[",
        "https://[x]/",
        "http://a..b/",
        f"http://{'a' * 64}.b/",
        "http://a:x/",
        f"http://a:{'9' * 30}/",
    ],
)
@pytest.mark.parametrize("login", [None, Login("ann", "hunter2")])
@pytest.mark.parametrize("by", ["realm", "redirect"])
def test_registry_that_refers_to_no_address_is_the_images_fault(
    front: Any, by: str, login: Login | None, target: str
) -> None:
    front.RequestHandlerClass, front.by, front.target = _Lure, by, target
    with pytest.raises(NotFound) as caught:
        read_config("app:1", registry=front.url, login=login, timeout_s=20)
    assert f"the registry {front.url}" in caught.value.what


@pytest.mark.parametrize("target", ["foo", "", "http:", "ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_realm_that_is_no_url_is_the_images_fault(front: Any, target: str) -> None:
    front.RequestHandlerClass, front.by, front.target = _Lure, "realm", target
    with pytest.raises(NotFound, match="which is not a valid address"):
        read_config("app:1", registry=front.url, timeout_s=20)


@pytest.mark.parametrize("by", ["realm", "redirect"])
@pytest.mark.parametrize("host", ["100.100.100.200", "[fd00:ec2::254]", "[::ffff:168.63.129.16]"])
def test_no_registry_has_a_metadata_address_asked(front: Any, by: str, host: str) -> None:
    front.RequestHandlerClass, front.by, front.target = _Lure, by, f"http://{host}/latest"
    with pytest.raises(NotFound, match="a link-local or metadata address, which tasks may not reach"):
        read_config("app:1", registry=front.url, denied=metadata_denials({}), timeout_s=20)


def test_no_registry_is_at_a_link_local_address() -> None:
    """Whoever names the image names the registry, which this process would ask as root."""
    with pytest.raises(NotFound, match="a link-local or metadata address, which tasks may not reach"):
        read_config(
            "169.254.7.7/app:1", registry="https://192.0.2.1", denied=metadata_denials({}), timeout_s=20
        )


def test_no_redirect_leads_out_of_http(front: Any, silent: socket.socket) -> None:
    front.RequestHandlerClass, front.by = _Lure, "redirect"
    front.target = f"ftp://127.0.0.1:{silent.getsockname()[1]}/x"
    with pytest.raises(Unavailable, match=r"cannot be read: .*ftp"):
        read_config("app:1", registry=front.url, timeout_s=20)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "[::1]", "[::]", "0", "2130706433", "169.254.1.1", "[fe80::1]", "localhost"],
)
def test_registry_elsewhere_cannot_refer_to_this_host(silent: socket.socket, host: str) -> None:
    reach = Reach("https://192.0.2.1")
    reach.check(Request("https://192.0.2.1/v2/"), "192.0.2.1", 443)
    port = silent.getsockname()[1]
    with pytest.raises(
        NotFound, match=r"the registry https://192\.0\.2\.1 refers to http://.* address, where"
    ):
        reach.send(Request(f"http://{host}:{port}/"), 20)


def test_a_name_that_leads_elsewhere_the_next_time(
    monkeypatch: pytest.MonkeyPatch, front: Any, silent: socket.socket
) -> None:
    """Connected to is the address that was checked; and what is asked next is checked anew."""
    real, ports = socket.getaddrinfo, [front.server_port, silent.getsockname()[1]]
    answers = [("192.0.2.1", 443), ("127.0.0.1", 80)]

    def look_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        return real(answers.pop(0)[0] if host == "evil.example" else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reach = Reach("https://evil.example")
    reach.check(Request("https://evil.example/v2/"), "evil.example", 443)
    with pytest.raises(NotFound, match=r"127\.0\.0\.1: a loopback address, where that registry is not"):
        reach.send(Request(f"http://evil.example:{ports[1]}/"), 20)
    answers[:] = [("127.0.0.1", 0)]  # asked once: a second look-up would find nothing here, and fail
    front.RequestHandlerClass, front.body = _Garbage, b"{}"
    with Reach("http://evil.example").send(Request(f"http://evil.example:{ports[0]}/"), 20) as response:
        assert response.read() == b"{}"


def test_the_operators_registry_may_be_at_a_port_that_tasks_are_denied(registry: str) -> None:
    push(registry, "app", "denied", CONFIG)
    denied = (Denial(int(registry.rpartition(":")[2])),)
    assert read_config("app:denied", registry=registry, denied=denied).user == "nobody:nogroup"


class _Garbage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        self.send_response(200)
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"hello", "is not that of an image"),
        (b"[]", "not a JSON object"),
        (b"{}", "the manifest of .* is not that of an image"),
        (b'{"manifests": 3}', "the index of .* is not that of an image"),
        (b'{"layers": [], "config": {"digest": "sha256:00", "size": 2}}', "only sha256 is supported"),
        (b'{"layers": [], "config": {"digest": "%b", "size": 2}}' % DIGEST.encode(), "it has another digest"),
        (b'{"layers": [], "config": {"digest": "%b", "size": -1}}' % DIGEST.encode(), "size -1"),
        (b" " * (9 << 20), "longer than"),
    ],
)
def test_damaged_answers_of_a_registry_are_refused(front: Any, body: bytes, match: str) -> None:
    front.RequestHandlerClass, front.body = _Garbage, body
    with pytest.raises(Damaged, match=match):
        read_config("app:1", registry=front.url)


def test_registry_that_never_ends() -> None:
    """A byte now and then keeps each wait short; the deadline is for all of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not done.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(Unavailable, match="it takes too long"):
                read_config("app:1", registry=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3)
        finally:
            done.set()
            thread.join()


# --- the agent


def test_the_environment_names_another_registry() -> None:
    assert registry_of({}, {}) == DEFAULT_REGISTRY
    assert registry_of({"docker_registry": "/a"}, {"MESOS_GPU_IMAGE_REGISTRY": "https://mirror"}) == (
        "https://mirror"
    )


def test_an_agent_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        flags_of(f"127.0.0.1:{free_port()}")


def test_flags_from_what_is_no_agent(registry: str) -> None:
    with pytest.raises(Unavailable, match="does not show its flags: 404"):
        flags_of(registry.removeprefix("http://"))
