"""The client of registries: logins by htpasswd and by a token service, manifests of both kinds, verified layers."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.images import registry as module
from isolator.images.login import Login, Logins
from isolator.images.reference import Reference
from isolator.images.registry import Descriptor, Refused, Registry
from isolator.images.source import read_config
from mesos_gpu.errors import Damaged, NotFound, Unavailable
from tests import registries
from tests.doubles.images import layer
from tests.registries import AMD, ARM, LIST, OCI_INDEX, USER, Running, push, push_manifest

pytestmark = pytest.mark.skipif(bool(registries.missing()), reason=registries.missing())
CONFIG = {"Cmd": ["x"], "User": "daemon"}
LAYERS = [layer({"etc": None}), layer({"data": bytes(range(256)) * 400})]
PASSWORD = "pa:ss"


@pytest.fixture(scope="module", params=["basic", "token"])
def private(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registries.registry(tmp_path_factory.mktemp(request.param), request.param, PASSWORD) as running:
        push(running.back, "team/app", "1", CONFIG, layers=LAYERS)
        push(running.back, "team/app", "oci", CONFIG, layers=LAYERS, oci=True)
        yield running


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registries.registry(tmp_path_factory.mktemp("open")) as running:
        yield running.url


def client(url: str, name: str = "team/app:1", login: Login | None = None) -> Registry:
    return Registry(url, Reference.of(name), login=login, timeout_s=20)


def login_of(running: Running, password: str | None = None) -> Login | None:
    return Logins.parse(running.config(password).encode()).find(running.host, "team/app")


@pytest.mark.parametrize("tag", ["1", "oci"])
def test_private_image_is_read_with_its_login(private: Running, tag: str) -> None:
    registry = client(private.url, f"team/app:{tag}", login_of(private))
    manifest = registry.manifest()
    assert registry.config()["config"] == CONFIG
    assert [each.size for each in manifest.layers] == [len(each) for each in LAYERS]
    for descriptor, data in zip(manifest.layers, LAYERS, strict=True):
        with registry.open_blob(descriptor) as blob:
            assert blob.read(10) + blob.read() == data
    pinned = client(private.url, f"team/app@{manifest.digest}", login_of(private))
    assert pinned.manifest() == manifest
    config = read_config(f"team/app:{tag}", registry=private.url, login=login_of(private))
    assert (config.cmd, config.user) == (("x",), "daemon")


def test_private_image_is_refused_without_the_login(private: Running) -> None:
    with pytest.raises(Refused, match=r"does not show team/app:1 at .* without a login: 401") as caught:
        client(private.url).manifest()
    assert private.host in caught.value.remedy
    assert "image_secret" in caught.value.remedy


def test_private_image_is_refused_to_a_wrong_login(private: Running) -> None:
    with pytest.raises(Refused, match="to the login of the image secret: 401") as caught:
        client(private.url, login=login_of(private, "hunter2")).manifest()
    assert "hunter2" not in f"{caught.value!r} {caught.value}"


def test_layer_of_a_private_image_is_refused_without_the_login(private: Running) -> None:
    layer_of = client(private.url, login=login_of(private)).manifest().layers[1]
    with pytest.raises(Refused), client(private.url).open_blob(layer_of):
        raise AssertionError("it was opened")


def test_token_is_asked_for_again_when_it_does_not_hold(tmp_path: Path) -> None:
    with registries.registry(tmp_path / "token", "token") as running:
        push(running.back, "team/app", "1", CONFIG, layers=LAYERS)
        registry = client(running.url, login=login_of(running))
        manifest = registry.manifest()
        registry._authorization = "Bearer expired"
        with registry.open_blob(manifest.layers[0]) as blob:
            assert blob.read() == LAYERS[0]
        assert [method for method, _ in running.asked] == ["GET", "GET"]


def test_token_that_expires_after_the_time_limit_of_the_manifest_is_renewed(tmp_path: Path) -> None:
    """A layer has a time limit of its own, also for the new token."""
    with registries.registry(tmp_path / "token", "token") as running:
        push(running.back, "team/app", "1", CONFIG, layers=LAYERS)
        registry = client(running.url, login=login_of(running))
        layers = registry.manifest().layers
        registry._authorization, registry._timer = "Bearer expired", module._Timer(0)
        with registry.open_blob(layers[0]) as blob:
            assert blob.read() == LAYERS[0]


def test_identity_token_is_exchanged_in_the_body_of_a_post(tmp_path: Path) -> None:
    with registries.registry(tmp_path / "token", "token") as running:
        push(running.back, "team/app", "1", CONFIG)
        login = Login("ann", "", running.refresh_token)
        assert client(running.url, login=login).config()["config"] == CONFIG
        assert running.asked == [("POST", running.refresh_token)]
        with pytest.raises(Refused):
            client(running.url, login=replace(login, identity_token="wrong")).manifest()


@pytest.mark.parametrize(("kind", "oci"), [(LIST, False), (OCI_INDEX, True)])
def test_list_of_platforms_gives_the_image_of_this_one(
    opened: str, kind: str, oci: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = push(opened, "many", "arm", {"Cmd": ["arm"]}, platform=ARM, oci=oci)
    amd = push(opened, "many", "amd", {"Cmd": ["amd"]}, platform=AMD, oci=oci)
    entries = [arm | {"platform": ARM}, amd | {"platform": AMD}]
    index = {"schemaVersion": 2, "mediaType": kind}
    push_manifest(opened, "many", "all", index | {"manifests": entries})
    push_manifest(opened, "many", "arm-list", index | {"manifests": entries[:1]})
    for architecture, words in (("amd64", "amd"), ("arm64", "arm")):
        monkeypatch.setattr(module, "platform", lambda of=architecture: ("linux", of))
        assert client(opened, "many:all").config()["config"]["Cmd"] == [words]
    monkeypatch.setattr(module, "platform", lambda: ("linux", "amd64"))
    for tag in ("arm", "arm-list"):
        with pytest.raises(NotFound, match="many is not made for linux/amd64, but for linux/arm64"):
            client(opened, f"many:{tag}").config()


# --- registries that are not what they should be


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers by `server.answers`: status, header and body, by path; keeps what it was sent."""

    def do_GET(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.seen.append((self.path.partition("?")[0], self.headers.get("Authorization"), body))
        server.methods.append(self.command)
        status, header, text = server.answers[self.path.partition("?")[0]]
        self.send_response(status)
        for name, value in header.items():
            self.send_header(name, value)
        if "Content-Length" not in header:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_POST = do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        return


class Server(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.answers: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.seen: list[tuple[str, str | None, bytes]] = []
        self.methods: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    both = Server(), Server()
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,)) for each in both]
    for thread in threads:
        thread.start()
    yield both
    for server, thread in zip(both, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def described(data: bytes, **more: Any) -> dict[str, Any]:
    return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data), **more}


def served(server: Server, data: bytes, **more: Any) -> Descriptor:
    """Serve an image of one layer, `data`; return the layer as its manifest describes it, with `more`."""
    config = json.dumps({"config": {}}).encode()
    told = described(data) | more
    body = json.dumps({"config": described(config), "layers": [told]}).encode()
    server.answers["/v2/app/manifests/1"] = 200, {}, body
    server.answers[f"/v2/app/blobs/{described(config)['digest']}"] = 200, {}, config
    server.answers[f"/v2/app/blobs/{told['digest']}"] = 200, {}, data
    return client(server.url, "app:1").manifest().layers[0]


@pytest.mark.parametrize("read", [0, 5, 100_000])
@pytest.mark.parametrize(
    ("more", "kind", "match"),
    [
        ({"digest": f"sha256:{'0' * 64}"}, Damaged, "another digest"),
        ({"size": 49_999}, Damaged, "longer than 49999 bytes"),
        ({"size": 50_001}, Unavailable, "broke off after 50000 of 50001 bytes"),
    ],
)
def test_layer_is_verified_at_its_end(
    servers: tuple[Server, Server], read: int, more: dict[str, Any], kind: type[Exception], match: str
) -> None:
    descriptor = served(servers[0], bytes(50_000), **more)

    def use() -> None:
        with client(servers[0].url, "app:1").open_blob(descriptor) as blob:
            blob.read(read)

    with pytest.raises(kind, match=match):
        use()


def test_error_of_the_reader_of_a_layer_goes_before_its_verification(servers: tuple[Server, Server]) -> None:
    descriptor = served(servers[0], bytes(50_000), digest=f"sha256:{'0' * 64}")
    with (
        pytest.raises(OSError, match="No space left"),
        client(servers[0].url, "app:1").open_blob(descriptor),
    ):
        raise OSError("No space left")


def test_layer_is_seen_by_head_also_where_a_redirect_leads(servers: tuple[Server, Server]) -> None:
    front, other = servers
    descriptor = served(front, b"data")
    path = f"/v2/app/blobs/{descriptor.digest}"
    front.methods.clear()
    client(front.url, "app:1").see_blob(descriptor)
    front.answers[path] = 307, {"Location": f"{other.url}/there"}, b""
    other.answers["/there"] = 200, {}, b"data"
    client(front.url, "app:1").see_blob(descriptor)
    assert (front.methods, other.methods) == (["HEAD", "HEAD"], ["HEAD"])


@pytest.mark.parametrize("status", [401, 403, 404])
def test_layer_that_the_registry_does_not_show_is_not_seen(
    servers: tuple[Server, Server], status: int
) -> None:
    descriptor = served(servers[0], b"data")
    servers[0].answers[f"/v2/app/blobs/{descriptor.digest}"] = status, {}, b""
    with pytest.raises(NotFound, match=descriptor.digest):
        client(servers[0].url, "app:1").see_blob(descriptor)


@pytest.mark.parametrize(
    "layers",
    [
        [{"digest": "sha256:zz", "size": 1}],
        [described(b"") | {"size": "1"}],
        [described(b"")] * 513,
        "x",
        [1],
    ],
)
def test_manifest_with_unfit_layers_is_damaged(servers: tuple[Server, Server], layers: Any) -> None:
    body = json.dumps({"config": described(b"{}"), "layers": layers}).encode()
    servers[0].answers["/v2/app/manifests/1"] = 200, {}, body
    with pytest.raises(Damaged):
        client(servers[0].url, "app:1").manifest()


def test_manifest_that_breaks_off_is_the_registrys_fault(servers: tuple[Server, Server]) -> None:
    servers[0].answers["/v2/app/manifests/1"] = 200, {"Content-Length": "50"}, b'{"layers": ['
    with pytest.raises(Unavailable, match="broke off after 12 of 50 bytes"):
        client(servers[0].url, "app:1").manifest()


LOGIN = Login("ann", "hunter2")


def challenge(realm: str) -> tuple[int, dict[str, str], bytes]:
    return 401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="s"'}, b""


def sent_login(server: Server) -> bool:
    return any(
        "hunter2" in body.decode() or authorization == LOGIN.basic() for _, authorization, body in server.seen
    )


def test_login_goes_to_no_token_service_of_another_host_in_clear(servers: tuple[Server, Server]) -> None:
    front, other = servers
    front.answers["/v2/app/manifests/1"] = challenge(f"http://localhost:{other.server_port}/token")
    with pytest.raises(Refused, match="unencrypted or to another host"):
        client(front.url, "app:1", LOGIN).manifest()
    assert not other.seen


def test_login_is_not_sent_along_by_redirects(servers: tuple[Server, Server]) -> None:
    front, other = servers
    there = {"Location": f"{other.url}/there"}
    front.answers["/v2/app/manifests/1"] = 307, there, b""
    other.answers["/there"] = 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
    with pytest.raises(Refused):
        client(front.url, "app:1", LOGIN).manifest()
    assert other.seen
    assert not sent_login(other)


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("login", [LOGIN, Login("ann", "", "hunter2")])
def test_login_is_not_sent_along_by_redirects_of_the_token_service(
    servers: tuple[Server, Server], login: Login, status: int
) -> None:
    front, other = servers
    front.answers["/v2/app/manifests/1"] = challenge(f"{front.url}/token")
    front.answers["/token"] = status, {"Location": f"{other.url}/there"}, b""
    other.answers["/there"] = 200, {}, b'{"token": "t"}'
    with pytest.raises(Refused):
        client(front.url, "app:1", login).manifest()
    assert not sent_login(other)


def test_registry_that_asks_for_patience_is_unavailable(servers: tuple[Server, Server]) -> None:
    front, _ = servers
    front.answers["/v2/app/manifests/1"] = 429, {}, b""
    with pytest.raises(Unavailable, match="answers 429"):
        client(front.url, "app:1").manifest()
    front.answers["/v2/app/manifests/1"] = challenge(f"{front.url}/token")
    front.answers["/token"] = 503, {}, b""
    with pytest.raises(Unavailable, match=r"token service .* answers 503"):
        client(front.url, "app:1", LOGIN).manifest()


def test_registry_without_a_challenge_is_asked_without_the_login(servers: tuple[Server, Server]) -> None:
    served(servers[0], b"data")
    client(servers[0].url, "app:1", LOGIN).config()
    assert not sent_login(servers[0])


def test_token_with_a_line_break_is_not_used(servers: tuple[Server, Server]) -> None:
    front, _ = servers
    front.answers["/v2/app/manifests/1"] = challenge(f"{front.url}/token")
    front.answers["/token"] = 200, {}, json.dumps({"token": "a\r\nX-Evil: 1"}).encode()
    with pytest.raises(Refused):
        client(front.url, "app:1").manifest()


def test_digest_of_another_kind_is_refused(servers: tuple[Server, Server]) -> None:
    with pytest.raises(NotFound, match="only sha256 digests"):
        client(servers[0].url, f"app@sha512:{'0' * 128}").manifest()
    assert servers[0].seen == []


def test_login_is_that_of_puller(private: Running) -> None:
    login = login_of(private)
    assert login == Login(USER, PASSWORD)
