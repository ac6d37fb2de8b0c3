"""Fetching packages: only what has the right digest, and no more than once."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mesos_gpu.errors import Unavailable
from tests.doubles import driver_packages
from tests.doubles.driver_packages import ALL, CURRENT, NEXT, Package, fetch, packages

CONTENT = b"a package"


class Handler(SimpleHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A mirror with one package; the directory that it serves."""
    top = tmp_path / "mirror"
    (top / "pool").mkdir(parents=True)
    (top / "pool/one.deb").write_bytes(CONTENT)
    package = Package("pool/one.deb", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(top))) as server:
        threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True).start()
        monkeypatch.setattr(driver_packages, "MIRRORS", (f"http://127.0.0.1:{server.server_port}",))
        monkeypatch.setattr(driver_packages, "packages", lambda *_: [package])
        monkeypatch.setenv("MESOS_GPU_TEST_CACHE", str(tmp_path / "cache"))
        yield top
        server.shutdown()


def test_driver_package_is_fetched_once_and_again_if_damaged(mirror: Path) -> None:
    (path,) = fetch("any")
    assert path.read_bytes() == CONTENT
    fetch("any")
    assert len(Handler.asked) == 1
    path.write_bytes(b"a pockage")
    fetch("any")
    assert path.read_bytes() == CONTENT
    assert len(Handler.asked) == 2


def test_the_second_mirror_has_what_the_first_has_not(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = driver_packages.MIRRORS[0]
    monkeypatch.setattr(driver_packages, "MIRRORS", (f"{there}/forgotten", there))
    (path,) = fetch("any")
    assert path.read_bytes() == CONTENT
    assert Handler.asked == ["/forgotten/pool/one.deb", "/pool/one.deb"]


def test_a_silent_mirror_is_given_up(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(driver_packages, "MIRRORS", (f"http://127.0.0.1:{silent.getsockname()[1]}",))
        monkeypatch.setattr(driver_packages, "TIMEOUT_S", (1.0, 0.1))
        with pytest.raises(Unavailable, match=r"cannot be reached.*timed out"):
            fetch("any")


def test_driver_package_of_another_content_is_refused(mirror: Path) -> None:
    (mirror / "pool/one.deb").write_bytes(b"a virus!!")
    with pytest.raises(Unavailable, match=r"has another one\.deb"):
        fetch("any")


def test_driver_package_that_is_missing_is_named_with_a_remedy(mirror: Path) -> None:
    (mirror / "pool/one.deb").unlink()
    with pytest.raises(Unavailable, match="404") as caught:
        fetch("any")
    assert "put one.deb into" in caught.value.remedy


def test_driver_package_list_has_names_and_digests_only() -> None:
    listed = packages(*ALL, NEXT)
    assert len({package.name for package in listed}) == len(listed)
    assert all(len(package.sha256) == 64 and package.path.startswith("pool/") for package in listed)
    assert any(package.name == f"libcuda1_{CURRENT}-1_amd64.deb" for package in listed)
    text = Path(driver_packages.__file__).with_suffix(".json").read_text()
    assert json.loads(text), "names and digests, and nothing of NVIDIA's"
