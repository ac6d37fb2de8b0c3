"""A scheduler process under TLS."""

import json
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.conftest import wait_until

COMMAND = [sys.executable, "-m", "mesos_gpu.scheduler", "--master", "127.0.0.1:1"]


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
def scheduler(directory: Path, *more: str) -> Iterator[Running]:
    log = directory / "log"
    command = [*COMMAND, "--state", str(directory / "s" / "state"), "--port", "0", *more]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            said = r"dashboard on (?:every address of this host, port |https://127\.0\.0\.1:)(\d+)"
            found = wait_until("it listens", lambda: re.search(said, log.read_text()))
            assert found is not None
            yield Running(process, log, int(found[1]))
        finally:
            process.terminate()


def test_its_status_tells_of_tls_and_sighup_takes_new_files(tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    own = ca.server()
    more = ["--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    with scheduler(tmp_path, *more) as running:
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


def test_who_opens_it_to_all_is_told_everywhere(tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    own = ca.server()
    more = ["--tls-cert", str(own.cert), "--tls-key", str(own.key), "--host", "0.0.0.0"]
    with scheduler(tmp_path, *more, "--insecure-no-authentication") as running:
        status = wait_until("it answers", lambda: _tried(running, ca))
        assert status["open_to_all"] is True
        text = running.log.read_text()
    assert f"every address of this host, port {running.port} (https)" in text
    assert "whoever reaches that address can do everything: there is no authentication" in text
    assert "no TLS" not in text


@pytest.mark.parametrize(
    ("mode", "more", "said"),
    [
        (0o644, [], "mode 0644"),
        (0o600, ["--tls-crl", "x"], "--tls-crl is nothing without --tls-client-ca"),
        (0o600, ["--host", "0.0.0.0"], "there is no authentication"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(
    tmp_path: Path, mode: int, more: list[str], said: str
) -> None:
    own = Authority(tmp_path).server()
    own.key.chmod(mode)
    command = [*COMMAND, "--state", str(tmp_path / "s" / "state"), "--port", "0"]
    tls = ["--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    done = subprocess.run([*command, *tls, *more], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78, done.stderr
    assert said in done.stderr
    assert not (tmp_path / "s").exists()
