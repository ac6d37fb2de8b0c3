"""Metrics as Marathon's /metrics prints them: the JSON of the Dropwizard library, version 4. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from mesos_gpu.wire.export.prometheus import Metric

_VERSION: Final = "4.0.0"


def render(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return the document. Families with labels are left out: its names have none, and clients make names of their own
    from them, in which no brace and no quotation mark may be."""
    families: dict[str, dict[str, dict[str, float]]] = {"counter": {}, "gauge": {}}
    value = {"counter": "count", "gauge": "value"}
    for metric in metrics:
        if not metric.labels:
            for _, number in metric.rows:
                families[metric.kind][metric.name] = {value[metric.kind]: number}
    unused: dict[str, Any] = {"histograms": {}, "meters": {}, "timers": {}}
    return {"version": _VERSION, "counters": families["counter"], "gauges": families["gauge"], **unused}
