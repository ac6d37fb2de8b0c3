"""Debian's Prometheus with the repository's configuration, boards and rules."""

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from mesos_gpu.local.own_ports import free_port

MONITORING: Final = Path(__file__).parents[3] / "docs/examples/monitoring"
RULES: Final = yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
BOARDS: Final = sorted((MONITORING / "boards").glob("*.json"))
needs_prometheus: Final = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no promtool (Debian: prometheus)"
)


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
        port = free_port()
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

    def firing(self) -> "Counter[str]":
        """How many alerts of each name fire."""
        alerts = self.ask("alerts")["alerts"]
        return Counter(alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing")

    def series(self, selector: str) -> dict[str, float]:
        """The values of series now, by their names; each name once."""
        answered = self.ask("query", query=selector)["result"]
        values = {each["metric"]["__name__"]: float(each["value"][1]) for each in answered}
        assert len(values) == len(answered)
        return values

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
