"""`mesos-gpu bench launch`: the cost of a launch in starts of an empty interpreter."""

import pytest

from mesos_gpu.cli.bench.starts import Used, by_name, empty_start_ms


def test_the_cost_of_a_task_is_told_by_part_and_in_empty_starts() -> None:
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


def test_an_empty_interpreter_takes_some_of_a_processor() -> None:
    assert 0 < empty_start_ms(rounds=2) < 1000


def test_the_cost_is_told_in_starts_of_what_path_has_too() -> None:
    told = by_name(ms_per_task=100.0)
    ratio = told["python3_on_path_starts_per_task"] * told["python3_on_path_cpu_ms"]
    assert ratio == pytest.approx(100.0, rel=0.1)


def test_without_a_python3_on_path_nothing_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert by_name(ms_per_task=100.0) == {}
