"""Use of cards in reports of a monitor: both ways, bounded, and absent from older monitors."""

import json
from typing import Any

import pytest

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import (
    MAX_GPU_USES,
    MAX_TASK_USES,
    GpuUse,
    Meters,
    TaskUse,
    Work,
)
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.sound import sound

CARD = GpuUse(GpuId("g"), 12.5, Meters(gpu_pct=0, power_mw=70123), Work(2.0, 100, 50), 3, 79)
TASK = TaskUse(TaskId("a.1"), GpuId("g"), 12.5, 2, 512, Work(3.0, 100, 0), 3.0)
UNKNOWN = GpuUse(GpuId("h"), 12.5), TaskUse(TaskId("b.1"), GpuId("h"), 12.5)
BOTH = Inventory(gpu_uses=(CARD, UNKNOWN[0]), task_uses=(TASK, UNKNOWN[1]))


def body(**changes: Any) -> bytes:
    """A report whose use says that, by "cards.0.at"."""
    value = json.loads(report.encode(BOTH))
    for path, wrong in changes.items():
        kind, _, names = path.partition("__")
        at = value["use"][kind][0]
        *above, name = names.split("__")
        for part in above:
            at = at[part]
        at[name] = wrong
    return json.dumps(value).encode()


def test_gpu_uses_come_back_and_unknown_values_are_not_0() -> None:
    again = report.decode(report.encode(BOTH))
    assert again == BOTH == sound(again)
    assert again.gpu_uses[0].meters.gpu_pct == 0
    assert again.gpu_uses[1].meters.gpu_pct is None


def test_gpu_uses_of_an_older_monitor_are_absent() -> None:
    value = json.loads(report.encode(BOTH))
    assert "use" not in json.loads(report.encode(Inventory()))
    for said in (None, {**value["use"], "version": 2}):
        again = report.decode(json.dumps({**value, "use": said}).encode())
        assert (again.gpu_uses, again.task_uses) == ((), ())


def test_gpu_use_fields_of_a_later_monitor_are_ignored() -> None:
    assert report.decode(body(cards__meters__colour=1, tasks__colour="red")) == BOTH


def test_gpu_uses_of_a_report_are_bounded() -> None:
    many = Inventory(gpu_uses=(CARD,) * 999, task_uses=(TASK,) * 999)
    value = json.loads(report.encode(many))
    assert (len(value["use"]["cards"]), len(value["use"]["tasks"])) == (MAX_GPU_USES, MAX_TASK_USES)
    value["use"] = {each: said if each == "version" else said * 2 for each, said in value["use"].items()}
    again = report.decode(json.dumps(value).encode())
    assert (len(again.gpu_uses), len(again.task_uses)) == (MAX_GPU_USES, MAX_TASK_USES)


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, [], 1 << 53])
@pytest.mark.parametrize(
    "where", ["cards__meters__gpu_pct", "cards__xid", "tasks__memory_mib", "cards__work__seen_ms"]
)
def test_gpu_use_amount_that_is_malformed_makes_a_report_unreadable(where: str, wrong: object) -> None:
    with pytest.raises(ValueError, match="must"):
        report.decode(body(**{where: wrong}))


@pytest.mark.parametrize("wrong", [-1.0, "1", True, None, float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("where", ["cards__at", "cards__work__since", "tasks__idle_since"])
def test_gpu_use_time_that_is_malformed_makes_a_report_unreadable(where: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=r"must|Out of range|NaN|Infinity"):
        report.decode(body(**{where: wrong}))


def test_gpu_use_busy_longer_than_seen_is_refused() -> None:
    with pytest.raises(ValueError, match="not less"):
        report.decode(body(cards__work__busy_ms=101))


def test_gpu_uses_that_are_no_object_make_a_report_unreadable() -> None:
    wrongs: tuple[Any, ...] = (1, [], "x", {"version": 1}, {"version": 1, "cards": [1], "tasks": []})
    for wrong in wrongs:
        with pytest.raises(ValueError, match="has a missing field"):
            report.decode(json.dumps({**json.loads(report.encode(BOTH)), "use": wrong}).encode())
