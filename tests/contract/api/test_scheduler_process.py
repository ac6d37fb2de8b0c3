"""A scheduler process: its TLS, the addresses where it listens, and options that it refuses."""

import json
import re
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.certificates import Authority
from tests.conftest import wait_until
from tests.contract.conftest import Spawn

MASTER: Final = ("--master", "127.0.0.1:1", "--port", "0")


class Running:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, port: int) -> None:
        self.process, self.log, self.port = process, log, port

    def get(self, path: str, ca: Authority) -> Any:
        context = ssl.create_default_context(cafile=str(ca.cert))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(f"https://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return json.load(answer)


@contextmanager
def scheduler(spawn: Spawn, directory: Path, *more: str) -> Iterator[Running]:
    log = directory / "log"
    process = spawn([*MASTER, "--state", str(directory / "s" / "state"), *more], log)
    try:
        said = r"dashboard on (?:every address of this host, port |https://127\.0\.0\.1:)(\d+)"
        line = wait_until("it listens", lambda: re.search(said, log.read_text()))
        assert line is not None
        yield Running(process, log, int(line[1]))
    finally:
        process.terminate()
        process.wait(60)


def test_tls_status_is_told_and_sighup_takes_new_files(spawn: Spawn, tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    own = ca.server()
    more = ["--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    with scheduler(spawn, tmp_path, *more) as running:
        status = wait_until("it answers", lambda: _tried(running, ca))
        assert status["webui_url"] == f"https://127.0.0.1:{running.port}"
        assert (status["open_to_all"], status["tls"]["problem"]) == (False, None)
        assert (status["tls"]["names"], status["tls"]["clients"]) == (
            ["localhost", "127.0.0.1", "::1"],
            "none",
        )
        own.key.write_text("nonsense")
        running.process.send_signal(signal.SIGHUP)
        wait_until("it is told", lambda: running.get("/v1/status", ca)["tls"]["problem"])
        ca.server()
        running.process.send_signal(signal.SIGHUP)
        wait_until("it is mended", lambda: running.get("/v1/status", ca)["tls"]["problem"] is None)
        assert running.process.poll() is None
        text = running.log.read_text()
    assert text.count("new TLS files are not used") == 1
    assert "new TLS files are used: CN=localhost" in text
    assert "Traceback" not in text


def _tried(running: Running, ca: Authority) -> Any:
    try:
        return running.get("/v1/status", ca)
    except OSError:
        return None


@pytest.mark.parametrize("has_tls", [True, False])
def test_scheduler_open_to_all_says_so_everywhere(spawn: Spawn, tmp_path: Path, has_tls: bool) -> None:
    ca = Authority(tmp_path)
    own = ca.server()
    tls = ["--tls-cert", str(own.cert), "--tls-key", str(own.key)] if has_tls else []
    with scheduler(spawn, tmp_path, *tls, "--host", "0.0.0.0", "--insecure-no-authentication") as running:
        if has_tls:
            status = wait_until("it answers", lambda: _tried(running, ca))
            assert status["open_to_all"] is True
        open_to_all = "everyone who reaches that address has full control: there is no authentication"
        wait_until("it is said", lambda: open_to_all in running.log.read_text())
        text = running.log.read_text()
    assert f"every address of this host, port {running.port} ({'https' if has_tls else 'http'})" in text
    assert ("no TLS" in text) is not has_tls
    assert "127.0.0.1:0" not in text


@pytest.mark.parametrize(
    ("mode", "more", "said"),
    [
        (0o644, [], "mode 0644"),
        (0o600, ["--tls-crl", "x"], "--tls-crl has no effect without --tls-client-ca"),
        (0o600, ["--host", "0.0.0.0"], "there is no authentication"),
        (None, ["--host", "0.0.0.0"], "--insecure-no-authentication"),
    ],
)
def test_scheduler_options_that_cannot_be_used_are_refused_at_the_start(
    spawn: Spawn, tmp_path: Path, mode: int | None, more: list[str], said: str
) -> None:
    tls: list[str] = []
    if mode is not None:
        own = Authority(tmp_path).server()
        own.key.chmod(mode)
        tls = ["--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    log = tmp_path / "log"
    code = spawn([*MASTER, "--state", str(tmp_path / "s" / "state"), *tls, *more], log).wait(60)
    assert code == 78, log.read_text()
    assert said in log.read_text()
    assert not (tmp_path / "s").exists()
