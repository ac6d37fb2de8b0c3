"""A real Prometheus reads a real scheduler: it finds it by /v1/sd, answers each query of the boards and rules, and an
alert fires on a made fault. Each other alert is tried by promtool on made samples."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.testing.builders import gpu
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon

MONITORING: Final = Path(__file__).parents[3] / "docs/examples/monitoring"
RULES: Final = yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
BOARDS: Final = sorted((MONITORING / "boards").glob("*.json"))
pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no promtool (Debian: prometheus)")


def queries() -> list[str]:
    """List the queries of every panel and every rule; variables stand for anything."""
    boards = [json.loads(path.read_text("utf-8")) for path in BOARDS]
    of_boards = [
        target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]
    ]
    return [re.sub(r"\$\w+", ".*", expr) for expr in (*of_boards, *(rule["expr"] for rule in RULES))]


def names_in(query: str) -> set[str]:
    names = re.findall(r"\b(?:mesos_gpu|DCGM_FI_DEV|process)_\w+", query)
    return {re.sub("_(bucket|count|sum)$", "", name) for name in names}


class Prometheus:
    """A server with the repository's configuration, but faster, on a port of its own."""

    def __init__(self, directory: Path, scheduler: str) -> None:
        text = (MONITORING / "prometheus.yml").read_text("utf-8").replace("http://127.0.0.1:8080", scheduler)
        text = re.sub(r"(scrape_interval|evaluation_interval): 15s", r"\1: 250ms", text)
        (directory / "prometheus.yml").write_text(
            text.replace("refresh_interval: 1m", "refresh_interval: 1s")
        )
        rules = (MONITORING / "alerts.yml").read_text("utf-8")
        (directory / "alerts.yml").write_text(re.sub(r"for: \d+[ms]", "for: 1s", rules))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stderr=log,
            )

    def ask(self, path: str, **params: str) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=30)
        assert answer.status_code == 200, (params, answer.text)
        return answer.json()["data"]

    def is_up(self) -> bool:
        try:
            ready = requests.get(f"{self.url}/-/ready", timeout=30).ok  # 503 until its rules are loaded
        except requests.ConnectionError:
            return False
        return ready and bool(self.ask("query", query='up{job="mesos-gpu"} == 1')["result"])

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


@pytest.fixture
def prometheus(rig: Marathon, tmp_path: Path) -> Iterator[Prometheus]:
    """Read the same scheduler, under an address that it knows."""
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = Server(create_app(rig.daemon, ApiSettings(url, "0.1.0")), listener)
    prometheus = Prometheus(tmp_path, url)
    yield prometheus
    prometheus.stop()
    server.stop()


def test_it_finds_the_scheduler_answers_each_query_and_an_alert_fires(
    rig: Marathon, prometheus: Prometheus
) -> None:
    rig.node("a2", (gpu("g2"),))
    wait_until("it scrapes", prometheus.is_up, 60)
    assert prometheus.firing() == set()
    declared = set(prometheus.ask("label/__name__/values")) | {
        line.split()[2]
        for line in rig.call("GET", "/metrics/prometheus").text.splitlines()
        if "# TYPE" in line
    }
    for query in queries():
        assert names_in(query) <= declared, query
        assert prometheus.ask("query", query=query)["resultType"] in ("vector", "scalar"), query
    rig.daemon.put(ev.Disconnected())
    wait_until("the alert", lambda: "MesosGpuDisconnected" in prometheus.firing(), 60)
    rig.daemon.put(ev.Registered("fw", "http://master"))
    wait_until("its end", lambda: "MesosGpuDisconnected" not in prometheus.firing(), 60)


def test_each_alert_fires_on_a_made_fault_and_not_before() -> None:
    cases = yaml.safe_load((MONITORING / "alerts_test.yml").read_text("utf-8"))["tests"]
    tried = [case["alert_rule_test"][0]["alertname"] for case in cases]
    assert sorted(tried) == sorted(rule["alert"] for rule in RULES)
    for case in cases:
        (quiet, loud) = case["alert_rule_test"]
        assert quiet["exp_alerts"] == []
        assert len(loud["exp_alerts"]) == 1
    done = subprocess.run(
        ["promtool", "test", "rules", str(MONITORING / "alerts_test.yml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
