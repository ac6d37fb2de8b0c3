"""Metrics in Prometheus' text format 0.0.4. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_TEXTS: Final = ("text/plain", "application/openmetrics-text")

Sample = tuple[Mapping[str, str], float]  # labels and value


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. `kind` is counter or gauge."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def asks_for_text(accept: str) -> bool:
    """Whether a request's Accept names the format, or the one that grew out of it; "*/*" names none."""
    return any(kind.partition(";")[0].strip().lower() in _TEXTS for kind in accept.split(","))


def render(metrics: Iterable[Metric]) -> str:
    """The page that Prometheus scrapes. Label values are escaped; names are ours and need none."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {_escaped_help(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{sample_name(metric, labels)} {_number(value)}" for labels, value in metric.samples]
    return "\n".join(lines) + "\n"


def sample_name(metric: Metric, labels: Mapping[str, str]) -> str:
    """The name of a sample, with its labels, if it has any."""
    return metric.name + _labels(labels)


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) else repr(value)
