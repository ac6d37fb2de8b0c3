"""Metrics in Prometheus' text format 0.0.4. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOT_FINITE: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_TEXTS: Final = ("text/plain", "application/openmetrics-text")

Sample = tuple[Mapping[str, str], float]  # labels and value


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of what many families have samples of: each as many as there are labels, which the families share.

    Attributes:
        labels: Values of the labels. The same list in all families: it is written once.
        numbers: In the same order; None: it has no sample.
    """

    labels: Sequence[tuple[str, ...]]
    numbers: Sequence[float | None]

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The rows."""
        for values, number in zip(self.labels, self.numbers, strict=True):
            if number is not None:
                yield values, number


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. `kind` is counter or gauge; `rows`: values of the labels, in their order, and the number."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Iterable[tuple[tuple[str, ...], float]]

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
    written: dict[int, tuple[Column, list[str]]] = {}  # by which list of labels, which the column keeps there
    for metric in metrics:
        name, rows = metric.name, metric.rows
        lines += [f"# HELP {name} {_escaped_help(metric.help)}", f"# TYPE {name} {metric.kind}"]
        if isinstance(rows, Column):
            if id(rows.labels) not in written:
                written[id(rows.labels)] = (
                    rows,
                    [_labels(metric.labels, each, escaped) for each in rows.labels],
                )
            lines += _numbers(name, written[id(rows.labels)][1], rows.numbers)
        else:
            lines += [
                f"{name}{_labels(metric.labels, values, escaped)} {_number(number)}"
                for values, number in rows
            ]
    return "\n".join(lines) + "\n"


def _numbers(name: str, texts: Iterable[str], numbers: Sequence[float | None]) -> list[str]:
    if {*map(type, numbers)} <= {int}:  # most are: meters of cards
        return [f"{name}{text} {number}" for text, number in zip(texts, numbers, strict=True)]
    return [
        f"{name}{text} {number if type(number) is int else _number(number)}"
        for text, number in zip(texts, numbers, strict=True)
        if number is not None
    ]


def sample_name(metric: Metric, labels: Mapping[str, str]) -> str:
    """The name of a sample, with its labels, if it has any."""
    return metric.name + _labels(tuple(labels), tuple(labels.values()), _Escaped())


class _Escaped(dict[str, str]):
    """Label values as they are written, each escaped once: most are there often."""

    def __missing__(self, value: str) -> str:
        text = self[value] = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return text


def _labels(names: tuple[str, ...], values: tuple[str, ...], escaped: _Escaped) -> str:
    return _form(names) % tuple([escaped[value] for value in values])


@cache
def _form(names: tuple[str, ...]) -> str:
    """How labels of these names are written."""
    inner = ",".join([f'{name}="%s"' for name in names])
    return f"{{{inner}}}" if inner else ""


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if float(value).is_integer():
        return str(int(value))
    text = repr(float(value))
    return _NOT_FINITE.get(text, text)
