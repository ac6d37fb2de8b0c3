"""`run --dry-run` and `submit --dry-run`, with a scheduler whose nodes are real enough; nothing is submitted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.engine import events as ev
from tests.contract.cli.cli_rig import call
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    """A node of four GPUs."""
    rig = Rig()
    rig.node("a1", tuple(gpu(f"g{i}") for i in range(4)))
    rig.daemon.put(ev.OffersArrived((offer("a1-3", "a1", gpus=4),)))
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield rig
    assert rig.call("GET", "/v1/jobs").json()["jobs"] == [], "nothing is submitted"
    rig.close()


def test_dry_run_of_run_says_where_a_job_fits(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    got = call("run", "--dry-run", "--upload", "--gpus", "2", "--name", "train", "--", "python3", "train.py")
    assert (got.exit_code, got.stdout, got.stderr) == (0, "train: fits now, on a1.example.\n", "")
    gang = call("run", "--dry-run", "--gpus", "2", "--tasks", "2", "--name", "gang", "-it", "--", "sh")
    assert gang.exit_code == 2, "-t needs a terminal, also in a dry run"
    gang = call("run", "--dry-run", "--gpus", "2", "--tasks", "2", "--name", "gang", "--", "sh")
    assert (gang.exit_code, gang.stdout) == (0, "gang: fits now, with all its tasks, on a1.example.\n")


def test_dry_run_of_run_says_why_a_job_would_wait(rig: Rig) -> None:
    got = call("run", "--dry-run", "--gpus", "1", "--cpus", "900", "--name", "wide", "--", "true")
    assert got.exit_code == 0
    assert got.stdout.startswith("wide: waits for 900")
    assert "Place in the queue: 1, no job ahead of it." in got.stdout


def test_dry_run_of_run_says_why_never_and_what_to_change(rig: Rig) -> None:
    got = call("run", "--dry-run", "--gpus", "9", "--gpu-memory", "1MiB", "--name", "big", "--", "true")
    assert got.exit_code == 1
    assert "big: asks for 9 GPUs" in got.stdout
    assert "the largest is a1.example with 4" in got.stdout
    assert got.stdout.endswith("To fix: --gpus 4 at most.\n")
    two = call("run", "--dry-run", "--gpus", "9", "--gpu-memory", "1TiB", "--name", "big", "--", "true")
    assert two.stdout.endswith("To fix: changing a single field is not enough.\n")


def test_dry_run_of_run_is_refused_as_the_submission(rig: Rig) -> None:
    words = ("--user", "root", "--", "true")
    tried, real = call("run", "--dry-run", *words), call("run", "-d", *words)
    assert (tried.exit_code, tried.stderr) == (real.exit_code, real.stderr)
    assert tried.exit_code == 65


def test_dry_run_of_submit_plans_each_job_of_a_file(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    jobs = [
        {"name": "one", "command": "true", "gpus": 1, "workdir": "code"},
        {"name": "many", "command": "true", "gpus": 1, "array": "0-9"},
        {"name": "model", "command": "true", "gpus": 1, "gpu_model": ["T4"]},
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    got = call("submit", "jobs.json", "--dry-run")
    assert got.exit_code == 1
    assert got.stdout.startswith("one: fits now, on a1.example.\nmany: fits now, on a1.example.\nmodel: ")
    assert got.stdout.endswith("To fix: leave out gpu_model.\n")
    plans = json.loads(call("submit", "jobs.json", "--dry-run", "--json").stdout)
    assert [plan["verdict"] for plan in plans] == ["fits", "fits", "never"]
    assert [plan["hostnames"] for plan in plans] == [["a1.example"], ["a1.example"], []]
    assert plans[2]["reliefs"] == [{"field": "gpu_model", "value": None}]
