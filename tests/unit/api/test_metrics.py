"""Metrics: each is declared once, measured once, and is on its page."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.api.metrics import families
from mesos_gpu.api.metrics.families import FAMILIES
from mesos_gpu.api.metrics.family import Family
from mesos_gpu.api.metrics.hooks import HookFigures
from mesos_gpu.api.metrics.http import HttpFigures
from mesos_gpu.api.metrics.peers import PeerFigures
from mesos_gpu.api.peers import Peers
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.scheduler.figures.meter import Meter
from mesos_gpu.wire.export import dropwizard, prometheus

PAGE = Path(__file__).parents[3] / "docs/reference/rest.md"


def on_the_page() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and labels of each metric, by its name, as the table of the page has them."""
    rows = re.findall(
        r"^\| (`(?:mesos_gpu|DCGM_FI_DEV)_[^|]*) \| (\w+) \| ([^|]*)\|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for names, kind, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }


def figures_of(standbys: int | None) -> PeerFigures:
    return PeerFigures(cast(Peers, SimpleNamespace(standbys=standbys)))


@pytest.mark.parametrize(
    ("standbys", "samples"),
    [
        (2, {"mesos_gpu_zookeeper_answers": 1, "mesos_gpu_standbys": 2}),
        (0, {"mesos_gpu_zookeeper_answers": 1, "mesos_gpu_standbys": 0}),
        (None, {"mesos_gpu_zookeeper_answers": 0}),
    ],
)
def test_metrics_have_no_standbys_while_they_are_unknown(
    standbys: int | None, samples: dict[str, float]
) -> None:
    metrics = figures_of(standbys).collect()
    assert {each.name: each.value for metric in metrics for each in metric.samples} == samples


def counted(directory: Path) -> dict[str, str]:
    """Kind of each metric that Prometheus' client makes, by its name on the page of samples."""
    hooks = HookStore(directory / "state.hooks")
    try:
        return {
            metric.name + ("_total" if metric.type == "counter" else ""): metric.type
            for collector in (Meter(), HttpFigures(), HookFigures(hooks), figures_of(1))
            for metric in collector.collect()
        }
    finally:
        hooks.close()


def test_metrics_page_has_exactly_the_declared_metrics(tmp_path: Path) -> None:
    declared = {family.name: (family.kind, family.labels) for family in FAMILIES}
    on_page, kinds = on_the_page(), counted(tmp_path)
    assert {name: row for name, row in on_page.items() if name not in kinds} == declared
    assert {name: kind for name, (kind, _) in on_page.items() if name in kinds} == kinds


def test_metrics_family_that_is_declared_is_measured_once_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(view: object) -> int:
        asked.append(view)
        return 7

    family = Family(
        "mesos_gpu_new", "gauge", "It is new.", measure, lambda number: [(("a",), number)], ("kind",)
    )
    again = Family("mesos_gpu_again", "counter", "As it was.", measure, lambda number: [((), number)])
    monkeypatch.setattr(families, "FAMILIES", (*FAMILIES, family, again))
    measured = families.snapshot(View(State(started_at=0.0), Settings.of("e", "m"), 0.0))
    assert len(asked) == 1
    text = prometheus.render(families.metrics(measured))
    assert "# HELP mesos_gpu_new It is new.\n# TYPE mesos_gpu_new gauge\n" in text
    assert 'mesos_gpu_new{kind="a"} 7\n' in text
    assert dropwizard.render(families.metrics(measured))["counters"]["mesos_gpu_again"] == {"count": 7}
