"""`python -m bench launch`: the cost of a launch in starts of an empty interpreter, and what is told of a launch that
the infrastructure lost.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench import starts
from bench.commands import MAX_LINES, _tell_losses
from bench.starts import Used, by_name, empty_start_ms
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.local.stack import Stack


def test_bench_launch_prints_the_cost_of_a_task_by_part() -> None:
    before = Used(containers=1.0, agents=2.0, masters=3.0, scheduler=4.0)
    after = Used(containers=2.0, agents=2.5, masters=3.1, scheduler=4.2)
    assert after.since(before, tasks=10, empty_ms=20.0) == pytest.approx(
        {
            "cpu_ms_per_task": 180.0,
            "empty_start_cpu_ms": 20.0,
            "containers_cpu_ms_per_task": 100.0,
            "agents_cpu_ms_per_task": 50.0,
            "masters_cpu_ms_per_task": 10.0,
            "scheduler_cpu_ms_per_task": 20.0,
            "container_empty_starts_per_task": 5.0,
            "empty_starts_per_task": 9.0,
        }
    )


def test_bench_launch_measures_an_empty_interpreter() -> None:
    assert 0 < empty_start_ms(rounds=2) < 1000


def test_bench_launch_prints_the_cost_in_starts_of_path_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "ROUNDS", 4)  # a quarter of them are for this
    told = by_name(ms_per_task=100.0)
    ratio = told["python3_on_path_starts_per_task"] * told["python3_on_path_cpu_ms"]
    assert ratio == pytest.approx(100.0, rel=0.1)


def test_bench_launch_without_a_python3_on_path_omits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert by_name(ms_per_task=100.0) == {}


def test_bench_launch_prints_log_lines_of_a_lost_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = {
        "scheduler": "registered\njob-7: launched as job-7.1\njob-8: launched\njob-7.1: lost\x1b[2J\n",
        "master": "I1124 Launching task job-8.1\n",
        "agent": "I1124 Executor job-7.1 has ended\n",
    }
    told = lines_told(tmp_path, capsys, logs, job("job-7", failures=1), job("job-8", failures=0))
    assert told == [
        "mesos-gpu: job-7 has lost a launch",
        "mesos-gpu:   job-7: launched as job-7.1",
        "mesos-gpu:   job-7.1: lost\\x1b[2J",
        "mesos-gpu:   I1124 Executor job-7.1 has ended",
    ]


def test_bench_launch_prints_the_last_lines_of_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "".join(f"job-7: {number}\n" for number in range(MAX_LINES + 9))
    told = lines_told(tmp_path, capsys, {"scheduler": many}, job("job-7", failures=2))
    assert len(told) == 1 + MAX_LINES
    assert told[-1] == f"mesos-gpu:   job-7: {MAX_LINES + 8}"


def test_bench_launch_prints_no_log_without_a_lost_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines_told(tmp_path, capsys, {"scheduler": "job-7: ended\n"}, job("job-7", failures=0)) == []


def job(job_id: str, failures: int) -> Job:
    return cast(Job, {"id": job_id, "infrastructure_failures": failures})


def lines_told(
    directory: Path, capsys: pytest.CaptureFixture[str], logs: dict[str, str], *jobs: Job
) -> list[str]:
    """Lines on stderr about jobs of a cluster with these logs."""
    made: dict[str, Any] = {}
    for name in ("scheduler", "master", "agent"):
        made[name] = SimpleNamespace(log=directory / name)
        made[name].log.write_text(logs.get(name, ""))
    cluster = SimpleNamespace(masters=[made["master"]], agents=[made["agent"]])
    _tell_losses(cast(Stack, SimpleNamespace(scheduler=made["scheduler"], cluster=cluster)), jobs)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()
