"""Metrics that marathon_exporter (gettyimages) makes of the interface, by its own steps and rules for names."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.contract.marathon.test_marathon_api import Marathon

NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # else its library fails, and no metric is shown at all
OF_APPS: Final = {
    "running": "tasksRunning",
    "staged": "tasksStaged",
    "healthy": "tasksHealthy",
    "unhealthy": "tasksUnhealthy",
    "cpus": "cpus",
    "mem_in_mb": "mem",
    "disk_in_mb": "disk",
    "gpus": "gpus",
    "avg_uptime": "taskStats.startedAfterLastScaling.stats.lifeTime.averageSeconds",
}


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def at(value: Any, path: str) -> Any:
    """The value at a dotted path, or None."""
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


class Exporter:
    """Metrics of the exporter by name and labels."""

    def __init__(self, rig: Marathon) -> None:
        self._rig = rig
        self.samples: dict[tuple[str, tuple[str, ...]], float] = {}

    def scrape(self) -> None:
        try:
            self._apps(self._rig.call("GET", "/v2/apps?embed=apps.taskStats").json())
            self._metrics(self._rig.call("GET", "/metrics").json())
        except ValueError:
            self.samples = {("marathon_up", ()): 0.0}
        else:
            self.samples["marathon_up", ()] = 1.0

    def _set(self, name: str, number: object, *labels: str) -> None:
        name = re.sub(r"[.$()-]", "_", name.lower())
        if not NAME.fullmatch(f"marathon_{name}"):
            raise ValueError(f"{name!r} is not a valid metric name")
        if isinstance(number, int | float):
            self.samples[f"marathon_{name}", labels] = float(number)

    def _apps(self, answer: Any) -> None:
        for app in answer["apps"]:
            labels = str(app["id"]), str(app["version"])
            self._set("app_instances", app["instances"], *labels)
            for name, path in OF_APPS.items():
                self._set(f"app_task_{name}", at(app, path), *labels)

    def _metrics(self, answer: Any) -> None:
        self._set("metrics_version", 1, answer["version"])
        for key, each in answer["counters"].items():
            self._set(key, each["count"])
        for key, each in answer["gauges"].items():
            self._set(key, each["value"])
        assert [answer[kind] for kind in ("histograms", "meters", "timers")] == [{}, {}, {}]


def test_marathon_exporter_is_up_and_has_the_names_of_marathon(rig: Marathon) -> None:
    rig.node()
    rig.submit(gpus=1)
    rig.create("/shop/db", instances=2)
    rig.tasks("/shop/db", 2)
    rig.settled()
    version = rig.shown("/shop/db")["version"]
    exporter = Exporter(rig)
    exporter.scrape()
    samples = exporter.samples
    assert samples["marathon_up", ()] == 1
    assert samples["marathon_app_instances", ("/shop/db", version)] == 2
    assert samples["marathon_app_task_running", ("/shop/db", version)] == 2
    assert samples["marathon_app_task_avg_uptime", ("/shop/db", version)] > 0
    for name, number in (
        ("marathon_apps_active_gauge", 1),
        ("marathon_groups_active_gauge", 2),
        ("marathon_deployments_active_gauge", 0),
        ("marathon_instances_running_gauge", 2),
        ("marathon_instances_staged_gauge", 0),
        ("marathon_tasks_launched_counter", 3),
        ("mesos_gpu_gpus_used", 1),
    ):
        assert samples[f"marathon_{name}", ()] == number, name
    assert samples["marathon_marathon_uptime_gauge_seconds", ()] > 0
    assert samples["marathon_marathon_mesos_offers_used_counter", ()] > 0


def test_labels_of_metrics_are_in_the_text_for_prometheus_only(rig: Marathon) -> None:
    rig.node()
    families = rig.call("GET", "/metrics").json()
    names = [name for kind in ("gauges", "counters") for name in families[kind]]
    assert "mesos_gpu_gpus" in names
    assert [name for name in names if "{" in name] == []
    assert 'mesos_gpu_jobs{state="running"} 0' in rig.call("GET", "/metrics/prometheus").text
