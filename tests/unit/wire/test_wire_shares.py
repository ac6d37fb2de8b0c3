"""Requests for shares of GPUs: in thousandths, exactly; or refused with all that is wrong."""

import json
from typing import Any, cast

import pytest

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.units import cards_of, milli_of, number_of
from mesos_gpu.wire import job_fields
from mesos_gpu.wire.checking import BadJson, Problem
from mesos_gpu.wire.jobs import decode, spec_from_mapping
from mesos_gpu.wire.shares import decode_resize


def problems(**value: Any) -> dict[str, str]:
    spec = spec_from_mapping({"command": "true", **value})
    return {} if isinstance(spec, JobSpec) else {problem.path: problem.reason for problem in spec}


def accepted(**value: Any) -> JobSpec:
    spec = decode(json.dumps({"command": "true", **value}).encode(), permits=Permits())
    assert isinstance(spec, JobSpec), spec
    return spec


WORDS = (
    "must be an integer from 0 to 1024, or a fraction of one GPU with at most three decimals, as 0.25, got "
)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        pytest.param(float("nan"), "NaN", id="NaN"),
        pytest.param(1e-9, "1e-09", id="1e-9"),
        pytest.param(-0.5, "-0.5", id="-0.5"),
        pytest.param(
            1.5, "1.5: for a part of each of several GPUs, set gpu_compute_pct and gpu_memory_mib", id="1.5"
        ),
        pytest.param("0.5", '"0.5": write it as a number, without quotes', id='"0.5"'),
        pytest.param(float("inf"), "Infinity", id="Infinity"),
        pytest.param(0.0005, "0.0005", id="half of a thousandth"),
        pytest.param(0.2505, "0.2505", id="between two thousandths"),
        pytest.param(0.9999, "0.9999", id="almost one"),
        pytest.param(1.0000000000000002, "1.0000000000000002: for a part", id="hardly more than one"),
        pytest.param(True, "true", id="true"),
        pytest.param([0.5], "[0.5]", id="a list"),
        pytest.param(10**400, "1000", id="no float"),
    ],
)
def test_share_fraction_that_is_malformed_is_refused_with_value_and_rule(gpus: object, said: str) -> None:
    (reason,) = problems(gpus=gpus).values()
    assert reason.startswith(WORDS + said)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan", ".5", "0.5.0", "+0.5", "1e400"])
def test_share_fraction_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(BadJson):
        decode(f'{{"command": "true", "gpus": {text}}}'.encode(), permits=Permits())


def test_share_fraction_of_every_thousandth_is_exact() -> None:
    for milli in range(1, 1000):
        for text in (f"0.{milli:03}", repr(milli / 1000), f"{milli}e-3"):
            spec = decode(f'{{"command": "true", "gpus": {text}}}'.encode(), permits=Permits())
            assert isinstance(spec, JobSpec), (text, spec)
            assert (spec.gpus, spec.gpu_milli, spec.is_share) == (1, milli, True)
            assert json.loads(json.dumps(job_fields.write(spec)["gpus"])) == milli / 1000
            assert milli_of(text) == milli or "e" in text
        assert cards_of(milli) == (1, milli)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "0",
        "1",
        "1.0",
        "0.0",
        "0.2505",
        "-0.5",
        "1.5",
        "nan",
        "1e-3",
        "0,5",
        " 0.5",
        "0.5\n",
        "\u0660.\u0665",
    ],
)
def test_share_fraction_text_that_is_malformed_is_refused(text: str) -> None:
    assert milli_of(text) is None


def test_share_fraction_may_have_zeros_around_it() -> None:
    assert [milli_of(text) for text in (".25", "0.25", "00.250", "0.2500000", "0.001")] == [250] * 4 + [1]


def test_share_request_of_whole_gpus_is_unchanged() -> None:
    for gpus in (0, 1, 1.0, 8):
        spec = accepted(gpus=gpus, **({"gpu_memory_mib": 40000} if gpus else {}))
        assert (spec.gpus, spec.gpu_milli, spec.is_share) == (gpus, 1000, False)
        assert spec.share_request(Isolation.SHARED) is None
        assert spec.resources.gpus == gpus
        written = job_fields.write(spec)["gpus"]
        assert written == gpus
        assert isinstance(written, int)
    assert [number_of(milli) for milli in (0, 1000, 3000, 250, 2250)] == [0, 1, 3, 0.25, 2.25]


@pytest.mark.parametrize(
    ("asked", "cards", "want"),
    [
        ({"gpus": 0.25}, 1, ShareRequest(250, 250)),
        ({"gpus": 0.25, "gpu_compute_pct": 40}, 1, ShareRequest(400, 250)),
        ({"gpus": 0.25, "gpu_memory_mib": 8000}, 1, ShareRequest(250, 0, 8000)),
        ({"gpus": 0.25, "gpu_memory_max_mib": 9}, 1, ShareRequest(250, 250, None, 9)),
        ({"gpu_compute_pct": 30, "gpu_memory_mib": 8000}, 1, ShareRequest(300, 0, 8000)),
        ({"gpus": 2, "gpu_compute_pct": 30, "gpu_memory_mib": 8000}, 2, ShareRequest(300, 0, 8000)),
        ({"gpu_compute_pct": 100, "gpu_memory_mib": 8000}, 1, ShareRequest(1000, 0, 8000)),
        (
            {
                "gpus": 1,
                "gpu_compute_pct": 1,
                "gpu_memory_mib": 5,
                "gpu_memory_max_mib": 5,
                "isolation": "any",
            },
            1,
            ShareRequest(10, 0, 5, 5, Isolation.ANY),
        ),
    ],
)
def test_share_request_is_read_for_each_card(asked: dict[str, Any], cards: int, want: ShareRequest) -> None:
    spec = accepted(**asked)
    assert spec.gpus == cards
    assert spec.share_request(Isolation.SHARED) == want
    assert spec.resources.gpus == 0, "another task holds the card in Mesos"
    assert spec_from_mapping({"command": "true", **job_fields.write(spec)}) == spec


def test_share_isolation_defaults_to_the_scheduler() -> None:
    asked = [accepted(gpus=0.5), accepted(gpus=0.5, isolation="any")]
    requests = [spec.share_request(Isolation.STRICT) for spec in asked]
    assert [request and request.isolation for request in requests] == [Isolation.STRICT, Isolation.ANY]


SHARE = "request gpus as a fraction, as 0.25, or set gpu_compute_pct and gpu_memory_mib; or leave it out"


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (
            {"gpu_compute_pct": 30},
            {
                "/gpu_compute_pct": (
                    "got 30 without memory; also set gpu_memory_mib, the memory of "
                    "the share of each GPU, or request gpus as a fraction, as 0.25"
                )
            },
        ),
        (
            {"gpus": 2, "gpu_compute_pct": 100},
            {"/gpu_compute_pct": "got 100 without memory; also set gpu_memory_mib"},
        ),
        (
            {"gpu_compute_pct": 30, "gpu_memory_mib": 2000, "gpu_memory_max_mib": 1000},
            {"/gpu_memory_max_mib": "must be at least gpu_memory_mib, which is 2000, got 1000"},
        ),
        (
            {"gpus": 0.5, "gpu_memory_mib": 2000, "gpu_memory_max_mib": 1999},
            {"/gpu_memory_max_mib": "must be at least gpu_memory_mib, which is 2000, got 1999"},
        ),
        (
            {"gpus": 1, "gpu_memory_max_mib": 9},
            {"/gpu_memory_max_mib": f"applies only to a share of a GPU, got 9: {SHARE}"},
        ),
        (
            {"gpus": 1, "isolation": "strict"},
            {"/isolation": f"applies only to a share of a GPU, got strict: {SHARE}"},
        ),
        ({"isolation": "any"}, {"/isolation": f"applies only to a share of a GPU, got any: {SHARE}"}),
        ({"gpus": 0, "gpu_compute_pct": 30}, {"/gpu_compute_pct": "needs gpus of at least 1"}),
        ({"gpu_compute_pct": 0}, {"/gpu_compute_pct": "must be an integer from 1 to 100, got 0"}),
        ({"gpu_compute_pct": 12.5}, {"/gpu_compute_pct": "must be an integer from 1 to 100, got 12.5"}),
        (
            {"gpus": 0.5, "isolation": "hard"},
            {"/isolation": 'must be one of strict, shared, any, got "hard"'},
        ),
        ({"gpus": 0.5, "gpu_memory_max_mib": 0}, {"/gpu_memory_max_mib": "must be a positive integer"}),
        (
            {"gpu_compute_pct": 30, "gpu_memory_max_mib": 9, "cpus": 0, "gpu_memory_mib": 10},
            {"/gpu_memory_max_mib": "which is 10, got 9", "/cpus": "must be a positive number"},
        ),
    ],
)
def test_share_request_with_conflicting_fields_is_refused_with_a_remedy(
    asked: dict[str, Any], want: dict[str, str]
) -> None:
    got = problems(**asked)
    assert got.keys() == want.keys()
    for path, reason in want.items():
        assert reason in got[path]


@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ({"gpus": 1.5, "gpu_compute_pct": 30}, {"/gpus"}),
        ({"gpus": 1.5, "isolation": "strict"}, {"/gpus"}),
        ({"gpus": 1, "gpu_compute_pct": 0, "gpu_memory_max_mib": 5}, {"/gpu_compute_pct"}),
        ({"gpus": 1, "gpu_compute_pct": 30, "gpu_memory_mib": -1}, {"/gpu_memory_mib"}),
        ({"gpus": 1, "isolation": "hard", "gpu_memory_max_mib": 9}, {"/isolation", "/gpu_memory_max_mib"}),
        (
            {"gpus": 1.5, "gpu_memory_mib": 9, "gpu_memory_max_mib": 8, "isolation": "hard"},
            {"/gpus", "/gpu_memory_max_mib", "/isolation"},
        ),
    ],
)
def test_share_request_that_is_refused_causes_no_further_problem(
    asked: dict[str, Any], paths: set[str]
) -> None:
    assert problems(**asked).keys() == paths


def test_limits_count_the_compute_of_a_share_or_its_fraction() -> None:
    counted: dict[int, dict[str, Any]] = {
        250: {"gpus": 0.25},
        400: {"gpus": 0.25, "gpu_compute_pct": 40},
        900: {"gpus": 0.9, "gpu_compute_pct": 1},
        10: {"gpu_compute_pct": 1, "gpu_memory_mib": 8000},
        1000: {"gpu_compute_pct": 100, "gpu_memory_mib": 8000},
        600: {"gpus": 2, "gpu_compute_pct": 30, "gpu_memory_mib": 8000},
        3000: {"gpus": 3},
        0: {},
    }
    assert [accepted(**asked).counted_milli for asked in counted.values()] == list(counted)
    assert accepted(gpus=0.25, tasks=3).gpu_milli_in_all == 750


@pytest.mark.parametrize("gpus", [0, 1, 2, -0.5, 0.0005, 0.12345, "0.5", True])
def test_resize_to_what_is_no_part_of_a_gpu_is_refused(gpus: object) -> None:
    (problem,) = cast(list[Problem], decode_resize(json.dumps({"gpus": gpus}).encode()))
    assert problem.path == "/gpus"
    assert problem.reason.startswith(
        "must be a fraction of one GPU with at most three decimals, as 0.25, got "
    )


def test_resize_to_a_part_takes_memory_and_compute_of_it_unless_they_are_named() -> None:
    whole = {"gpu_milli": 250, "gpu_memory_mib": None, "gpu_compute_pct": None}
    assert decode_resize(b'{"gpus": 0.25}') == whole
    assert decode_resize(b'{"gpus": 0.25, "gpu_memory_mib": 9}') == {**whole, "gpu_memory_mib": 9}
