"""Metrics in Prometheus' text format 0.0.4. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_TEXTS: Final = ("text/plain", "application/openmetrics-text")

Sample = tuple[Mapping[str, str], float]  # labels and value


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. `kind` is counter or gauge; `rows`: values of the labels, in their order, and the number."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[str, ...], float]]

    @property
    def samples(self) -> list[Sample]:
        """The rows, with the names of their labels."""
        return [(dict(zip(self.labels, values, strict=True)), number) for values, number in self.rows]


def asks_for_text(accept: str) -> bool:
    """Whether a request's Accept names the format, or the one that grew out of it; "*/*" names none."""
    return any(kind.partition(";")[0].strip().lower() in _TEXTS for kind in accept.split(","))


def render(metrics: Iterable[Metric]) -> str:
    """The page that Prometheus scrapes. Label values are escaped; names are ours and need none.

    A card's labels are those of some twenty families: they are written once.
    """
    lines: list[str] = []
    escaped = _Escaped()
    written: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}  # labels, by their names and values
    for metric in metrics:
        lines += [f"# HELP {metric.name} {_escaped_help(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        known, name = written.setdefault(metric.labels, {}), metric.name
        for values, number in metric.rows:
            text = known.get(values)
            if text is None:
                text = known[values] = _labels(metric.labels, values, escaped)
            lines.append(f"{name}{text} {number if type(number) is int else _number(number)}")
    return "\n".join(lines) + "\n"


def sample_name(metric: Metric, labels: Mapping[str, str]) -> str:
    """The name of a sample, with its labels, if it has any."""
    return metric.name + _labels(tuple(labels), tuple(labels.values()), _Escaped())


class _Escaped(dict[str, str]):
    """Label values as they are written, each escaped once: most are there often."""

    def __missing__(self, value: str) -> str:
        text = self[value] = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return text


def _labels(names: tuple[str, ...], values: tuple[str, ...], escaped: _Escaped) -> str:
    inner = ",".join([f'{name}="{escaped[value]}"' for name, value in zip(names, values, strict=True)])
    return f"{{{inner}}}" if inner else ""


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) else repr(value)
