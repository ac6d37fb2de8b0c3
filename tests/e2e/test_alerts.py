"""Alerts of a real Prometheus, one for each fault of cards, agents, masters and schedulers of a real Mesos."""

import subprocess
from typing import Any, Final

import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until
from tests.contract.metrics.prometheus import Prometheus
from tests.e2e.test_monitoring import ask_all, edit
from tests.e2e.test_monitoring import client as client
from tests.e2e.test_monitoring import prometheus as prometheus
from tests.e2e.test_monitoring import pytestmark as pytestmark
from tests.e2e.test_monitoring import stack as stack

FAULTS: Final[dict[int, dict[str, Any]]] = {
    0: {"use": {"temperature_c": 97}, "xids": [31]},
    1: {"health": "sick", "reason": "XID 48"},
}


def fire(prometheus: Prometheus, expected: dict[str, int]) -> bool:
    """Look whether just these alerts fire; if not, what does is in the test's output."""
    firing = prometheus.firing()
    print(sorted(firing.items()))
    return firing == expected


def faults_have_alerts(stack: Stack, prometheus: Prometheus) -> None:
    """Make faults of cards, and let an app want what no node has."""
    assert not prometheus.firing()
    with subprocess.Popen(["sleep", "300"]) as stranger:
        try:
            faults = {**FAULTS, 2: {"pids": [stranger.pid]}}
            for minor, said in faults.items():
                edit(stack, 1, minor, **said)
            app = {"id": "/web", "cmd": "sleep 300", "instances": 1, "cpus": 0.1, "mem": 32, "gpus": 64}
            assert requests.post(f"{stack.url}/v2/apps", json=app, timeout=60).status_code == 201
            stack.inventory(2).write_text("no inventory")
            of_cards = {"Out": 1, "Dirty": 1, "Hot": 1, "Xid": 1, "Unknown": 2}
            expected = {f"MesosGpuCard{name}": number for name, number in of_cards.items()}
            expected["MesosGpuAppNotHealthy"] = 1
            wait_until("each alert fires once, and no other", lambda: fire(prometheus, expected))
            ask_all(stack, prometheus)
        finally:
            stranger.kill()


def ends_have_alerts(stack: Stack, prometheus: Prometheus) -> None:
    """End an agent, the master, and the scheduler."""
    stack.cluster.agents[1].kill()
    wait_until("the agent is lost", lambda: "MesosGpuNodeLost" in prometheus.firing(), 120)
    stack.cluster.master.kill()
    wait_until("no master leads", lambda: "MesosGpuDisconnected" in prometheus.firing())
    stack.scheduler.kill()
    wait_until("no scheduler answers", lambda: "MesosGpuSchedulerDown" in prometheus.firing())


def test_prometheus_fires_one_alert_for_each_fault(
    stack: Stack, client: Client, prometheus: Prometheus
) -> None:
    wait_until("it scrapes", prometheus.is_up)
    faults_have_alerts(stack, prometheus)
    ends_have_alerts(stack, prometheus)
