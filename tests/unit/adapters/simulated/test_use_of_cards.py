"""Scripts of simulated cards: what a task does, from look to look, to the millisecond."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.adapters.simulated.use import Holder, script_of, with_scripts
from mesos_gpu.adapters.simulated_gpus import SimulatedProbe, change_gpu, simulated_gpus, write_inventory
from mesos_gpu.model.nodes.gpu_use import Span
from mesos_gpu.model.nodes.health import Reading

GPUS = simulated_gpus(2, "Tesla T4", seed="scripts")
ANN = [{"for_s": 30, "busy_pct": 90}, {"for_s": 60, "unknown": True}, {"burst_ms": 50, "every_s": 20}]


class Card:
    """The first card of a host, and who holds it."""

    def __init__(self, path: Path, scripts: dict[str, Any]) -> None:
        write_inventory(path, GPUS, use=with_scripts(scripts))
        self.holders: list[Holder] = []
        self.now = 1000.0
        self._probe = SimulatedProbe(path, lambda: self.holders, lambda: self.now)

    def holds(self, task: str, *, pid: int = 1, whole: bool = True) -> None:
        self.holders.append(Holder(task, (GPUS[0].id,), round(self.now * 1000), pid, whole))

    def after(self, seconds: float) -> Reading:
        self.now += seconds
        return self._probe.survey().readings[0]


def test_simulated_use_steps_begin_when_a_task_takes_the_card(tmp_path: Path) -> None:
    card = Card(tmp_path / "g.json", {"ann": ANN})
    assert card.after(0).span is None, "there was no look before"
    card.now += 4
    card.holds("ann.1")
    assert card.after(6).span == Span(10_000, 5400), "and nothing before"
    assert card.after(24).span == Span(24_000, 21_600)
    assert card.after(10).span is None, "nobody can tell"
    assert card.after(60).span == Span(10_000, 50), "of a part it is told"
    assert [card.after(10).span for _ in range(4)] == [Span(10_000, 0), Span(10_000, 50)] * 2
    card.holders.clear()
    assert card.after(10).span == Span(10_000, 0)


def test_simulated_use_is_chosen_by_job_pattern_or_card(tmp_path: Path) -> None:
    card = Card(tmp_path / "g.json", {"ann-*": [{"busy_pct": 10}], "*": [{"busy_pct": 20}]})
    card.after(0)
    for task, busy_ms in (("ann-2.1", 1000), ("bob.17", 2000)):
        card.holders.clear()
        card.holds(task)
        assert card.after(10).span == Span(10_000, busy_ms)
    other = Card(tmp_path / "h.json", {"ann": [{"busy_pct": 10}]})
    other.after(0)
    other.holds("bob.1")
    span = other.after(10).span
    assert span is not None
    assert span.busy_ms >= 5500, "as a card that a task holds"


def test_simulated_use_of_a_shared_card_follows_processes(tmp_path: Path) -> None:
    card = Card(
        tmp_path / "g.json",
        {"a": [{"busy_pct": 80}], "b": [{"for_s": 10, "busy_pct": 40}, {"unknown": True}]},
    )
    card.after(0)
    card.holds("a.1", pid=7, whole=False)
    card.holds("b.1", pid=8, whole=False)
    both = card.after(10)
    assert (both.span, both.pids, both.process_busy_ms) == (
        Span(10_000, 10_000),
        (7, 8),
        ((7, 8000), (8, 4000)),
    )
    assert card.after(10).span is None, "what one of them does is not known"


def test_simulated_use_restarts_when_the_clock_is_set_back(tmp_path: Path) -> None:
    card = Card(tmp_path / "g.json", {"a": [{"busy_pct": 100}]})
    card.holds("a.1")
    card.after(10)
    assert card.after(10).span == Span(10_000, 10_000)
    assert card.after(-5).span is None
    assert card.after(1).span == Span(1000, 1000)


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=20))
def test_simulated_use_looks_sum_up_to_the_script(steps: list[int]) -> None:
    script = script_of([{"for_s": 33.3, "busy_pct": 33.3}, {"for_s": 7, "unknown": True}, ANN[2]], "")
    at, seen, busy = 0, 0, 0
    for ms in steps:
        part = script.between(at, at + ms)
        assert 0 <= part.busy_ms <= part.seen_ms <= ms
        at, seen, busy = at + ms, seen + part.seen_ms, busy + part.busy_ms
    assert Span(seen, busy) == script.so_far(at)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([], "use.scripts.a: it must be a list of steps, as [{"),
        ([{"busy": 1}], 'use.scripts.a[0]: it must be an object like {"for_s": 60} with one of'),
        ([{"busy_pct": 101}], "use.scripts.a[0].busy_pct must be percent from 0 to 100, got 101"),
        ([{"busy_pct": 1}, {"unknown": 1}], "use.scripts.a[1].unknown must be true, got 1"),
        ([{"burst_ms": 50}], "use.scripts.a[0]: it must be an object like"),
        ([{"burst_ms": 50, "every_s": 0}], "every_s must be seconds, a millisecond or more, got 0"),
        (
            [{"burst_ms": 50, "every_s": 0.01}],
            "burst_ms must be whole milliseconds, no more than every_s, got 50",
        ),
        ([{"for_s": "1", "busy_pct": 1}], "for_s must be seconds, a millisecond or more, got '1'"),
    ],
)
def test_simulated_use_script_that_is_malformed_makes_its_card_unknown_and_names_the_step(
    tmp_path: Path, script: list[Any], words: str
) -> None:
    path = tmp_path / "g.json"
    write_inventory(path, GPUS)
    change_gpu(path, GPUS[1].id, use={"scripts": {"a": script}})
    why = SimulatedProbe(path).survey().readings[1].misdescribed
    assert words in why
    assert why.startswith("gpus[1]: ")
    assert json.loads(path.read_text())["gpus"]
