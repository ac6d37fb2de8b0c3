"""The text that Prometheus reads: format, escapes, numbers."""

import math

from mesos_gpu.wire.export.prometheus import Metric, render


def test_families_and_escapes() -> None:
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


def test_numbers_that_are_none() -> None:
    rows = [((), math.inf), ((), -math.inf), ((), math.nan)]
    assert render([Metric("x", "gauge", "X.", (), rows)]).splitlines()[2:] == ["x +Inf", "x -Inf", "x NaN"]
