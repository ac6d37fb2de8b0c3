"""Metrics in the form of Marathon's /metrics, the JSON of the Dropwizard library, version 4; pure functions."""

from collections.abc import Iterable
from typing import Any, Final

from mesos_gpu.wire.export.prometheus import Metric

_VERSION: Final = "4.0.0"


def render(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return the document, without families that have labels.

    Dropwizard names have no labels, and clients derive their own names, which must contain no braces and quotation
    marks.
    """
    families: dict[str, dict[str, dict[str, float]]] = {"counter": {}, "gauge": {}}
    value = {"counter": "count", "gauge": "value"}
    for metric in metrics:
        if not metric.labels:
            for _, number in metric.rows:
                families[metric.kind][metric.name] = {value[metric.kind]: number}
    unused: dict[str, Any] = {"histograms": {}, "meters": {}, "timers": {}}
    return {"version": _VERSION, "counters": families["counter"], "gauges": families["gauge"], **unused}
