"""The alerts of docs/examples/monitoring, each tried by promtool on made samples: what a fault takes hours for, or
cannot be made on a cluster. Those that can are tried by a real Prometheus on a real Mesos."""

import subprocess

import yaml

from tests.contract.metrics.prometheus import MONITORING, RULES, needs_prometheus

pytestmark = needs_prometheus


def test_alerts_fire_on_a_made_fault_and_not_before() -> None:
    cases = yaml.safe_load((MONITORING / "alerts_test.yml").read_text("utf-8"))["tests"]
    tried = {case["alert_rule_test"][0]["alertname"] for case in cases}
    assert tried == {rule["alert"] for rule in RULES}
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
