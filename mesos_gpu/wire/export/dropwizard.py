"""Metrics as Marathon's /metrics prints them: the JSON of the Dropwizard library, version 4. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from mesos_gpu.wire.export.prometheus import Metric, sample_name

_VERSION: Final = "4.0.0"


def render(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Each sample under its name with its labels, as "mesos_gpu_jobs{state=\"running\"}"."""
    families: dict[str, dict[str, dict[str, float]]] = {"counter": {}, "gauge": {}}
    value = {"counter": "count", "gauge": "value"}
    for metric in metrics:
        for labels, number in metric.samples:
            families[metric.kind][sample_name(metric, labels)] = {value[metric.kind]: number}
    unused: dict[str, Any] = {"histograms": {}, "meters": {}, "timers": {}}
    return {"version": _VERSION, "counters": families["counter"], "gauges": families["gauge"], **unused}
