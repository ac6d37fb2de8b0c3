"""The text that Prometheus reads: format, escapes, numbers."""

import math

from mesos_gpu.wire.export.prometheus import Column, Metric, Texts, render, rendered


def test_prometheus_families_are_written_with_escapes() -> None:
    hostile = 'a"b\\c\nd'
    metrics = [
        Metric("up", "gauge", "Is\nit \\ up.", (), [((), 1.0)]),
        Metric("x_total", "counter", "X.", ("l", "m"), [((hostile, ""), 2.5), (("é", "f"), 1e18)]),
        Metric("none", "gauge", "No sample.", (), ()),
    ]
    assert render(metrics).splitlines() == [
        "# HELP up Is\\nit \\\\ up.",
        "# TYPE up gauge",
        "up 1",
        "# HELP x_total X.",
        "# TYPE x_total counter",
        'x_total{l="a\\"b\\\\c\\nd",m=""} 2.5',
        'x_total{l="é",m="f"} 1000000000000000000',
        "# HELP none No sample.",
        "# TYPE none gauge",
    ]


def test_prometheus_numbers_that_are_not_finite_are_written() -> None:
    rows = [((), math.inf), ((), -math.inf), ((), math.nan)]
    assert render([Metric("x", "gauge", "X.", (), rows)]).splitlines()[2:] == ["x +Inf", "x -Inf", "x NaN"]


def test_prometheus_labels_are_cached_and_forgotten_when_gone() -> None:
    texts, names = Texts(), ("card",)

    def page(first: int) -> list[str]:
        labels = [(f"c{number}",) for number in range(first, first + 2000)]
        column = Column(labels, list(range(2000)))
        metrics = [Metric("x", "gauge", "X.", names, column), Metric("y", "gauge", "Y.", names, column)]
        lines = "".join(rendered(metrics, texts)).splitlines()
        assert lines[2:4] == [f'x{{card="c{first}"}} 0', f'x{{card="c{first + 1}"}} 1']
        assert len(lines) == 2 * 2002
        return [texts.of(names)[each] for each in labels]

    before = page(0)
    assert all(new is old for new, old in zip(page(0), before, strict=True))
    page(2000)
    assert len(texts.of(names)) == 4000
    page(4000)
    assert len(texts.of(names)) == 2000, "there were more than twice those of a page"
    assert page(0) == before
