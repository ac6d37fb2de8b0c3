"""Getting libmesos: what is refused, and with which remedy. No test here leaves this machine."""

import contextlib
import hashlib
import http.server
import os
import pty
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.errors import Damaged, MesosGpuError, Unavailable
from mesos_gpu.libmesos import fetch
from tests.certificates import Authority, context_of


@pytest.mark.parametrize(
    ("system", "machine", "libc", "text"),
    [
        ("Linux", "aarch64", "glibc 2.36", "this is Linux on aarch64"),
        ("Darwin", "x86_64", "", "this is Darwin on x86_64"),
        ("Linux", "x86_64", "", "this system has another one"),
        ("Linux", "x86_64", "glibc 2.9", "this system has glibc 2.9"),
    ],
)
def test_fetch_on_another_kind_of_machine_is_refused(system: str, machine: str, libc: str, text: str) -> None:
    with pytest.raises(Unavailable, match=text) as refusal:
        fetch.check_machine(system, machine, libc)
    assert "run it on a current Debian" in refusal.value.remedy


@pytest.mark.parametrize("libc", ["glibc 2.17", "glibc 2.41", "glibc 3.0"])
def test_fetch_on_a_current_machine_is_allowed(libc: str) -> None:
    fetch.check_machine("Linux", "x86_64", libc)


def test_a_missing_library_is_named_with_its_package() -> None:
    needed = {"libc.so.6": "libc6", "libabsent.so.2": "libabsent2", "libgone.so.1": "libgone1"}
    with pytest.raises(Unavailable, match=r"needs libabsent\.so\.2, libgone\.so\.1") as refusal:
        fetch.check_system_libraries(needed)
    assert refusal.value.remedy == "apt-get install -y libabsent2 libgone1"


@pytest.mark.parametrize("name", [fetch.LIBRARY, fetch.EGG])
def test_a_damaged_cache_is_refused_and_the_file_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"half of it")
    with pytest.raises(Damaged, match="has sha256") as refusal:
        fetch.libmesos(tmp_path)
    assert refusal.value.remedy == f"remove it and try again: rm {tmp_path / name}"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_cache_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be written") as refusal:
        fetch.libmesos(tmp_path / "file" / "cache")
    assert "MESOS_GPU_CACHE" in refusal.value.remedy


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESOS_GPU_CACHE", str(tmp_path))
    assert fetch.library_path() == tmp_path / fetch.LIBRARY
    monkeypatch.delenv("MESOS_GPU_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert fetch.library_path() == Path("/xdg/mesos-gpu") / fetch.LIBRARY


class Index(http.server.BaseHTTPRequestHandler):
    """A package index with one project, whose one file has `content` and, allegedly, `digest`."""

    content, digest = b"not the distribution", ""

    def do_GET(self) -> None:
        file = f"/files/{fetch.EGG}"
        page = f'<a href="{file}#sha256={self.digest}">{fetch.EGG}</a>'.encode()
        known = {"/simple/mesos-scheduler/": ("text/html", page), file: ("application/zip", self.content)}
        kind, body = known.get(self.path, ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[tuple[type[Index], str]]:
    """An index, and its address."""

    class Own(Index):
        digest = hashlib.sha256(Index.content).hexdigest()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Own, f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Index]]:
    with serving() as (own, url):
        monkeypatch.setattr(fetch, "pip_settings", lambda: {"index-url": url})
        yield own


def refused_download(cache: Path) -> MesosGpuError:
    with pytest.raises(MesosGpuError) as refusal:
        fetch.libmesos(cache)
    assert list(cache.iterdir()) == []
    return refusal.value


def test_fetch_of_another_file_under_the_name_is_refused(
    tmp_path: Path, index: type[Index], capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = refused_download(tmp_path)
    assert isinstance(refusal, Damaged)
    assert fetch.EGG_SHA256 in refusal.what
    assert capsys.readouterr().err == "Downloading Apache Mesos 1.11.0 (27 MB, once)\n"


def test_a_download_damaged_on_the_way_is_refused(tmp_path: Path, index: type[Index]) -> None:
    index.digest = fetch.EGG_SHA256
    refusal = refused_download(tmp_path)
    assert isinstance(refusal, Damaged)
    assert "damaged on the way" in refusal.what


def test_index_without_the_library_is_named(
    tmp_path: Path, index: type[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = fetch.pip_settings()["index-url"] + "elsewhere/"
    monkeypatch.setattr(fetch, "pip_settings", lambda: {"index-url": elsewhere})
    refusal = refused_download(tmp_path)
    assert isinstance(refusal, Unavailable)
    assert "check the network" in refusal.remedy


def test_fetch_without_network_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "http://127.0.0.1:1/simple/"  # tcpmux: nothing listens there
    monkeypatch.setattr(fetch, "pip_settings", lambda: {"index-url": nowhere})
    refusal = refused_download(tmp_path)
    assert isinstance(refusal, Unavailable)
    assert "cannot download" in refusal.what
    assert "MESOS_GPU_CACHE" in refusal.remedy


def test_index_may_be_certified_by_an_authority_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is to have a service of ours need not have pip, nor anything that says whom pip trusts."""
    authority, cache = Authority(tmp_path, "of a company"), tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(fetch, "_AUTHORITIES", (str(tmp_path / "none.pem"), str(authority.cert)))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with serving(context_of(authority.server("index"))) as (_, url):
        monkeypatch.setattr(fetch, "pip_settings", lambda: {"index-url": url})
        assert isinstance(refused_download(cache), Damaged), "it came, and is not what it should be"
        monkeypatch.setattr(fetch, "_AUTHORITIES", ())
        assert "CERTIFICATE_VERIFY_FAILED" in refused_download(cache).what


def test_fetch_shows_a_bar_on_a_terminal(
    tmp_path: Path, index: type[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen, os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        refused_download(tmp_path)
        terminal.flush()
        seen = screen.read(100_000).decode()
    assert "Downloading Apache Mesos 1.11.0" in seen
    assert "━" in seen
    assert "once" not in seen


@pytest.mark.long
def test_pips_own_settings_lead_to_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_CERT", "/etc/company.pem")
    assert fetch.pip_settings() == {"index-url": "https://mirror.example/simple", "cert": "/etc/company.pem"}
