"""Metrics in the text format 0.0.4 of Prometheus; pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOT_FINITE: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_SPARE: Final = 1000  # label texts that are cached beyond twice those of a page
_TEXTS: Final = ("text/plain", "application/openmetrics-text")

Sample = tuple[Mapping[str, str], float]  # labels and value


@dataclass(frozen=True, slots=True)
class Column:
    """Samples of one family as two parallel lists; several families may share the list of labels.

    Attributes:
        labels: Label values of each sample. Families with the same list object share their text.
        numbers: Values in the order of `labels`; None for no sample.
    """

    labels: Sequence[tuple[str, ...]]
    numbers: Sequence[float | None]

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the label values and number of each sample."""
        for values, number in zip(self.labels, self.numbers, strict=True):
            if number is not None:
                yield values, number


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. `kind` is counter or gauge; `rows` are pairs of label values, in order of `labels`, and
    number."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Iterable[tuple[tuple[str, ...], float]]

    @property
    def samples(self) -> list[Sample]:
        """Samples with label names."""
        return [(dict(zip(self.labels, values, strict=True)), number) for values, number in self.rows]


def asks_for_text(accept: str) -> bool:
    """Return whether an Accept header names this format or OpenMetrics; "*/*" does not."""
    return any(kind.partition(";")[0].strip().lower() in _TEXTS for kind in accept.split(","))


def render(metrics: Iterable[Metric]) -> str:
    """Return the page that Prometheus scrapes. Label values are escaped; names are trusted."""
    return "".join(rendered(metrics, Texts()))


def rendered(metrics: Iterable[Metric], texts: "Texts") -> Iterator[str]:
    """Yield the page family by family.

    Args:
        metrics: Families of samples.
        texts: Cache of label texts from previous pages; most labels, those of GPUs, rarely change.
    """
    # Holding the column keeps the id of its list unique.
    columns: dict[tuple[int, tuple[str, ...]], tuple[Column, list[str]]] = {}
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
    if kinds <= {int}:  # the common case: meters of GPUs
        return [f"{name}{text} {number}\n" for text, number in zip(texts, numbers, strict=True)]
    return [
        f"{name}{text} {number if type(number) is int else _number(number)}\n"
        for text, number in zip(texts, numbers, strict=True)
        if number is not None
    ]


class Texts:
    """Cache of written label values from one page to the next, limited to about twice those of a page."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], _Written] = {}

    def of(self, names: tuple[str, ...]) -> "_Written":
        """Return the texts of labels with given names."""
        if names not in self._of:
            self._of[names] = _Written(names)
        return self._of[names]

    def trim(self) -> None:
        """End a page: clear caches that hold much more than the page used."""
        for texts in self._of.values():
            if len(texts) > 2 * texts.most + _SPARE:
                texts.clear()
            texts.most = 0


class _Written(dict[tuple[str, ...], str]):
    """Cached texts by label values.

    Attributes:
        most: Largest number of rows in a family of the current page.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        inner = ",".join([f'{name}="%s"' for name in names])
        self._form, self.most = f"{{{inner}}}" if inner else "", 0

    def all(self, rows: Sequence[tuple[str, ...]]) -> list[str]:
        """Return the texts of rows of label values, in their order."""
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
