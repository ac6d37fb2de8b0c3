"""Metrics in Prometheus' text format 0.0.4. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOT_FINITE: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_SPARE: Final = 1000  # texts of labels that are kept beyond twice those of a page
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
    """The page that Prometheus scrapes. Label values are escaped; names are ours and need none."""
    return "".join(rendered(metrics, Texts()))


def rendered(metrics: Iterable[Metric], texts: "Texts") -> Iterator[str]:
    """The page, family by family.

    Args:
        metrics: The families.
        texts: Labels as they were written for the page before: most are those of cards, which stay.
    """
    columns: dict[
        tuple[int, tuple[str, ...]], tuple[Column, list[str]]
    ] = {}  # the column keeps its list of labels
    for metric in metrics:
        name, rows, of = metric.name, metric.rows, texts.of(metric.labels)
        head = f"# HELP {name} {_escaped_help(metric.help)}\n# TYPE {name} {metric.kind}\n"
        if isinstance(rows, Column):
            key = id(rows.labels), metric.labels
            if key not in columns:
                columns[key] = (rows, of.all(rows.labels))
            yield head + "".join(_numbers(name, columns[key][1], rows.numbers))
        else:
            kept = rows if isinstance(rows, Sequence) else tuple(rows)
            written = of.all([values for values, _ in kept])
            yield head + "".join(_numbers(name, written, [number for _, number in kept]))
    texts.trim()


def _numbers(name: str, texts: Iterable[str], numbers: Sequence[float | None]) -> list[str]:
    kinds = {*map(type, numbers)}
    if kinds <= {int}:  # most are: meters of cards
        return [f"{name}{text} {number}\n" for text, number in zip(texts, numbers, strict=True)]
    return [
        f"{name}{text} {number if type(number) is int else _number(number)}\n"
        for text, number in zip(texts, numbers, strict=True)
        if number is not None
    ]


class Texts:
    """Label values as they are written, kept from one page to the next; as many as twice those of a page."""

    def __init__(self) -> None:
        """None was written."""
        self._of: dict[tuple[str, ...], _Written] = {}

    def of(self, names: tuple[str, ...]) -> "_Written":
        """The texts of labels that have these names."""
        if names not in self._of:
            self._of[names] = _Written(names)
        return self._of[names]

    def trim(self) -> None:
        """A page is done: forget all where more are kept than it needs."""
        for each in self._of.values():
            if len(each) > 2 * each.most + _SPARE:
                each.clear()
            each.most = 0


class _Written(dict[tuple[str, ...], str]):
    """Texts by the values of labels, each made once.

    Attributes:
        most: So many a family of this page had.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        inner = ",".join([f'{name}="%s"' for name in names])
        self._form, self.most = f"{{{inner}}}" if inner else "", 0

    def all(self, rows: Sequence[tuple[str, ...]]) -> list[str]:
        """The texts of some, in their order."""
        self.most = max(self.most, len(rows))
        return [self[values] for values in rows]

    def __missing__(self, values: tuple[str, ...]) -> str:
        text = self[values] = self._form % tuple([_escaped(value) for value in values])
        return text


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if float(value).is_integer():
        return str(int(value))
    text = repr(float(value))
    return _NOT_FINITE.get(text, text)
