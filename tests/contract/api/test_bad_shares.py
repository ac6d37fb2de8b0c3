"""Requests that are no share of a GPU: refused with all that is wrong, wherever they come from, and nothing is done."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mesos_gpu.model.shares.card import Sharing
from tests.contract.cli.cli_rig import call
from tests.contract.marathon.test_marathon_api import CMD, Marathon
from tests.doubles.builders import gpu

#: What an app calls the fields of a job: in its object `gpu`.
OF_APP = {
    "gpu_compute_pct": "compute_pct", "gpu_memory_mib": "memory_mib", "gpu_memory_max_mib": "memory_max_mib",
    "isolation": "isolation", "gpu_model": "models",
}  # fmt: skip
JSON = {"Content-Type": "application/json"}
IN_THOUSANDTHS = "a fraction of one GPU with at most three decimals, as 0.25, got"
#: Each with what is asked for, and a part of what is said of each field.
BAD: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a fraction not in thousandths": ({"gpus": 0.1234}, {"gpus": f"{IN_THOUSANDTHS} 0.1234"}),
    "a fraction near nothing": ({"gpus": 1e-9}, {"gpus": f"{IN_THOUSANDTHS} 1e-09"}),
    "a fraction below nothing": ({"gpus": -0.5}, {"gpus": f"{IN_THOUSANDTHS} -0.5"}),
    "more than one card's fraction": (
        {"gpus": 1.5},
        {"gpus": f"{IN_THOUSANDTHS} 1.5: for a part of each of several GPUs, set"},
    ),
    "compute without memory": ({"gpus": 1, "gpu_compute_pct": 30}, {"gpu_compute_pct": "30 without memory"}),
    "a maximum below the request": (
        {"gpus": 0.5, "gpu_memory_mib": 2000, "gpu_memory_max_mib": 1999},
        {"gpu_memory_max_mib": "which is 2000, got 1999"},
    ),
    "more than its model has": (
        {"gpus": 0.5, "gpu_memory_mib": 15_361, "gpu_model": ["T4"]},
        {"gpu_memory_mib": "got 15361: T4 has 15360 MiB for shares; request less, or another model"},
    ),
    "all at once": (
        {"gpus": 1.5, "gpu_memory_mib": 2000, "gpu_memory_max_mib": 1000, "gpu_compute_pct": 101},
        {"gpus": "got 1.5", "gpu_memory_max_mib": "which is 2000, got 1000", "gpu_compute_pct": "100"},
    ),
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Marathon]:
    """A scheduler that knows one card, of model T4."""
    rig = Marathon()
    rig.node(gpus=(replace(gpu("g0", "T4"), sharing=Sharing(15_360)),))
    yield rig
    rig.close()


def _said(problems: dict[str, str], want: dict[str, str]) -> None:
    assert problems.keys() == want.keys(), problems
    for name, part in want.items():
        assert part in problems[name]


@pytest.mark.parametrize("name", BAD)
def test_v1_refuses_it_with_all_that_is_wrong(rig: Marathon, name: str) -> None:
    asked, want = BAD[name]
    response = rig.call("POST", "/v1/jobs", json={"command": "true", **asked})
    assert response.status_code == 422, response.text
    problems = response.json()["error"]["problems"]
    _said({each["path"].removeprefix("/"): each["reason"] for each in problems}, want)
    assert rig.call("GET", "/v1/jobs").json()["total"] == 0


@pytest.mark.parametrize("name", BAD)
def test_v2_refuses_it_with_all_that_is_wrong(rig: Marathon, name: str) -> None:
    asked, want = BAD[name]
    options = {OF_APP[key]: value for key, value in asked.items() if key in OF_APP}
    body = {"id": "/bad", **CMD, "gpus": asked["gpus"], "gpu": options}
    wanted = {f"gpu/{OF_APP[key]}" if key in OF_APP else key: part for key, part in want.items()}
    places = (
        ("POST", "/v2/apps", body, ""),
        ("PUT", "/v2/apps/bad", body, ""),
        ("PUT", "/v2/apps", [{"id": "/good", **CMD}, body], "(1)/"),
        ("PUT", "/v2/groups", {"id": "/", "apps": [body]}, "apps(0)/"),
    )
    for verb, path, sent, place in places:
        response = rig.call(verb, path, json=sent)
        assert response.status_code == 422, (path, response.text)
        details = {
            each["path"].removeprefix("/"): "; ".join(each["errors"]) for each in response.json()["details"]
        }
        _said(details, {place + key: part for key, part in wanted.items()})
    assert rig.call("GET", "/v2/apps").json()["apps"] == [], "nothing is half-applied"


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_file_is_refused_with_all_that_is_wrong(
    rig: Marathon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str, name: str
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    asked, want = BAD[name]
    file = tmp_path / f"job.{form}"
    job = {"command": "true", **asked}
    file.write_text(json.dumps(job) if form == "json" else yaml.safe_dump(job))
    got = call("submit", str(file))
    assert got.exit_code == 65, got.output
    for key, part in want.items():
        (line,) = [line for line in got.stderr.splitlines() if f"/{key}: " in line]
        assert part in line
    assert rig.call("GET", "/v1/jobs").json()["total"] == 0


def test_gpu_number_nan_is_refused_everywhere(
    rig: Marathon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    for path, body in (("/v1/jobs", {"command": "true"}), ("/v2/apps", {"id": "/nan", **CMD})):
        response = rig.call("POST", path, data=json.dumps({**body, "gpus": float("nan")}), headers=JSON)
        assert response.status_code == 400, "it is no JSON"
    file = tmp_path / "job.yaml"
    file.write_text("command: 'true'\ngpus: .nan\n")
    got = call("submit", str(file))
    assert (got.exit_code, "/gpus: must be an integer from 0" in got.stderr) == (65, True), got.stderr
    got = call("run", "--gpus", "nan", "--", "true")
    assert (got.exit_code, "'nan' is not a number of GPUs" in got.stderr) == (2, True), got.stderr


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (
            ("--gpus", "0.1234"),
            2,
            "'0.1234' is not a number of GPUs, such as 0 or 8, or a part of one in thousandths, such as 0.25",
        ),
        (("--gpus", "1.5"), 2, "'1.5' is not a number of GPUs"),
        (("--gpus", "1.5"), 2, "as 0.25; for a part of each of several: --gpu-compute and --gpu-memory"),
        (("--gpu-compute", "30"), 65, "  --gpu-compute: got 30 without memory; also set --gpu-memory"),
        (("--gpus", "0", "--gpu-compute", "30"), 65, "  --gpu-compute: needs --gpus of at least 1"),
        (
            ("--gpus", "0.5", "--gpu-memory", "2GiB", "--gpu-memory-max", "1GiB"),
            65,
            "  --gpu-memory-max: must be at least --gpu-memory, which is 2048, got 1024",
        ),
        (("--gpus", "0.5", "--gpu-memory", "16GiB", "--gpu-model", "T4"), 65, "T4 has 15360 MiB for shares"),
        (
            ("--gpus", "1", "--gpu-isolation", "strict"),
            65,
            "  --gpu-isolation: applies only to a share of a GPU, got strict",
        ),
    ],
)
def test_the_command_line_refuses_it(
    rig: Marathon, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], exit_code: int, said: str
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    got = call("run", "--detach", *words, "--", "true")
    assert (got.exit_code, said in got.stderr) == (exit_code, True), got.stderr
    assert rig.call("GET", "/v1/jobs").json()["total"] == 0


def test_v1_says_more_than_its_model_has_with_all_else(rig: Marathon) -> None:
    asked = {"gpus": 0.5, "gpu_memory_mib": 15_361, "gpu_memory_max_mib": 9, "gpu_model": ["T4"], "cpus": 0}
    problems = rig.call("POST", "/v1/jobs", json={"command": "true", **asked}).json()["error"]["problems"]
    want = {"gpu_memory_mib": "T4 has 15360 MiB", "gpu_memory_max_mib": "is 15361, got 9", "cpus": "got 0"}
    _said({each["path"].removeprefix("/"): each["reason"] for each in problems}, want)


def test_an_app_whose_cards_are_too_small_by_now_can_still_be_scaled() -> None:
    options: dict[str, Any] = {"memory_mib": 20_000, "models": ["L4"]}
    with closing(Marathon()) as rig:
        rig.ask("POST", "/v2/apps", 201, json={"id": "/early", **CMD, "gpus": 0.5, "gpu": options})
        rig.node(gpus=(replace(gpu("g0", "L4"), sharing=Sharing(10_000)),))
        late = rig.ask("POST", "/v2/apps", 422, json={"id": "/late", **CMD, "gpus": 0.5, "gpu": options})
        assert "L4 has 10000 MiB" in str(late)
        rig.ask("PUT", "/v2/apps/early?force=true", json={"instances": 0})
        more = {"gpu": {**options, "memory_mib": 20_001}}
        assert "got 20001: L4 has 10000 MiB" in str(
            rig.ask("PUT", "/v2/apps/early?force=true", 422, json=more)
        )
