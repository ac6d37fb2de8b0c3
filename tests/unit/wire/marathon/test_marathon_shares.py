"""Apps that ask for shares of GPUs: by a fraction, by a label, exactly; and what is none."""

from typing import Any

import pytest

from mesos_gpu.model.apps.app import App, same_but_scale
from mesos_gpu.wire.marathon.app import app_of, app_to_json, updated
from tests.unit.wire.marathon.test_marathon_app import app, faults


@pytest.mark.parametrize(
    ("sent", "card", "milli", "written"),
    [
        ({"gpus": 0.25}, 1, 250, 0.25),
        ({"gpus": 1, "labels": {"GPU_SHARE": "0.25"}}, 1, 250, 1),
        ({"gpus": 0.25, "labels": {"GPU_SHARE": "0.250"}}, 1, 250, 0.25),
        ({"gpu": {"compute_pct": 30, "memory_mib": 2000}}, 1, 1000, 1),
        ({"gpus": 2, "gpu": {"compute_pct": 30, "memory_mib": 2000, "isolation": "strict"}}, 2, 1000, 2),
        ({"gpus": 2}, 2, 1000, 2),
        ({}, 0, 1000, 0),
    ],
)
def test_marathon_share_is_a_fraction_a_label_or_exact(
    sent: dict[str, Any], card: int, milli: int, written: float
) -> None:
    definition = app(**sent)
    assert (definition.gpus, definition.part_milli) == (card, milli)
    assert app_to_json(definition)["gpus"] == written
    assert isinstance(app_to_json(definition)["gpus"], type(written))
    assert app_of(app_to_json(definition)) == definition
    other = updated(definition, {"instances": 3})
    assert isinstance(other, App)
    assert (other.gpus, other.part_milli, other.instances) == (card, milli, 3)
    assert same_but_scale(definition, other)


def test_marathon_share_change_is_a_change_of_the_app() -> None:
    halved = updated(app(gpus=0.5), {"gpus": 0.25})
    assert isinstance(halved, App)
    assert not same_but_scale(app(gpus=0.5), halved)
    whole = updated(app(gpus=0.5), {"gpus": 1})
    assert isinstance(whole, App)
    assert (whole.gpus, whole.gpu_milli) == (1, 1000)


@pytest.mark.parametrize(
    ("sent", "path", "why"),
    [
        pytest.param({"gpus": 1e-9}, "/gpus", "as 0.25, got 1e-09", id="1e-9"),
        pytest.param({"gpus": -0.5}, "/gpus", "as 0.25, got -0.5", id="-0.5"),
        pytest.param({"gpus": 1.5}, "/gpus", "set gpu.compute_pct and gpu.memory_mib", id="1.5"),
        pytest.param({"gpus": "0.5"}, "/gpus", "error.expected.jsnumber", id='"0.5"'),
        pytest.param({"gpus": float("nan")}, "/gpus", "error.expected.jsnumber", id="NaN"),
        (
            {"gpus": 1, "labels": {"GPU_SHARE": "NaN"}},
            "/labels/GPU_SHARE",
            'at most three decimals, as 0.25, got "NaN"',
        ),
        ({"gpus": 1, "labels": {"GPU_SHARE": "1.5"}}, "/labels/GPU_SHARE", 'got "1.5"'),
        ({"gpus": 1, "labels": {"GPU_SHARE": ""}}, "/labels/GPU_SHARE", 'got ""'),
        (
            {"gpus": 2, "labels": {"GPU_SHARE": "0.5"}},
            "/labels/GPU_SHARE",
            "with gpus of 1, got 2; set gpus to 1",
        ),
        ({"labels": {"GPU_SHARE": "0.5"}}, "/labels/GPU_SHARE", "with gpus of 1, got 0; set gpus to 1"),
        ({"gpus": 0.25, "labels": {"GPU_SHARE": "0.5"}}, "/labels/GPU_SHARE", "got 0.25; set gpus to 1"),
        ({"gpus": 1, "gpu": {"compute_pct": 30}}, "/gpu/compute_pct", "also set gpu.memory_mib"),
        ({"gpus": 1, "labels": {"MESOS_GPU_COMPUTE_PCT": "30"}}, "/gpu/compute_pct", "got 30 without memory"),
        (
            {"gpus": 1, "gpu": {"isolation": "strict"}},
            "/gpu/isolation",
            "applies only to a share of a GPU, got strict",
        ),
        ({"gpu": {"isolation": "any"}}, "/gpu/isolation", "request gpus as a fraction, as 0.25"),
        ({"gpus": 0, "gpu": {"compute_pct": 30}}, "/gpu/compute_pct", "needs gpus of at least 1"),
        ({"labels": {"MESOS_GPU_COMPUTE_PCT": "30"}}, "/gpu/compute_pct", "needs gpus of at least 1"),
        ({"gpus": 1, "gpu": {"compute_pct": 101}}, "/gpu/compute_pct", "is greater than 100"),
        (
            {"gpus": 0.5, "gpu": {"memory_mib": 2000, "memory_max_mib": 1000}},
            "/gpu/memory_max_mib",
            "must be at least gpu.memory_mib, which is 2000, got 1000",
        ),
    ],
)
def test_marathon_share_that_is_malformed_is_refused_with_a_remedy(
    sent: dict[str, Any], path: str, why: str
) -> None:
    assert why in "; ".join(faults(**sent)[path])


@pytest.mark.parametrize(
    ("sent", "paths"),
    [
        ({"gpus": 1.5, "gpu": {"memory_mib": 10, "isolation": "strict"}}, {"/gpus"}),
        ({"gpus": 1.5, "gpu": {"compute_pct": 30}}, {"/gpus"}),
        (
            {"gpus": 1.5, "gpu": {"memory_mib": 10, "memory_max_mib": 5}, "instances": -1},
            {"/gpus", "/gpu/memory_max_mib", "/instances"},
        ),
        ({"gpus": 1, "gpu": {"compute_pct": 30, "memory_mib": -3}}, {"/gpu/memory_mib"}),
        (
            {"gpus": 1, "labels": {"GPU_SHARE": "1.5", "MESOS_GPU_ISOLATION": "strict"}},
            {"/labels/GPU_SHARE"},
        ),
        (
            {"gpus": 1, "gpu": {"compute_pct": 30}, "labels": {"MESOS_GPU_MEMORY_MIB": "much"}},
            {"/labels/MESOS_GPU_MEMORY_MIB"},
        ),
    ],
)
def test_marathon_share_that_is_refused_causes_no_further_problem(
    sent: dict[str, Any], paths: set[str]
) -> None:
    assert faults(**sent).keys() == paths
