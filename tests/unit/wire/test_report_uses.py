"""Shares in use in reports of a monitor: both ways, bounded, and absent from older monitors."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.share_use import MAX_USES, ShareUse
from mesos_gpu.wire.mesos import report

USE = ShareUse(TaskId("a.1"), GpuId("g"), 100, 200, 300, 4, 5, 1, "its file is damaged")
NOTHING_KNOWN = ShareUse(TaskId("b.1"), GpuId("g"))


def body(**use: Any) -> bytes:
    """A report whose one use says that."""
    value = json.loads(report.encode(Inventory(uses=(USE,))))
    value["uses"][0].update(use)
    return json.dumps(value).encode()


def test_share_uses_come_back() -> None:
    inventory = Inventory(uses=(USE, NOTHING_KNOWN))
    assert report.decode(report.encode(inventory)) == inventory


def test_share_uses_of_an_older_monitor_are_absent() -> None:
    assert "uses" not in json.loads(report.encode(Inventory()))
    assert report.decode(report.encode(Inventory())).uses == ()


def test_share_use_fields_of_a_later_monitor_are_ignored() -> None:
    assert report.decode(body(colour="red")).uses == (USE,)


def test_share_uses_of_a_report_are_bounded_and_words_cut() -> None:
    many = Inventory(uses=(USE,) * (MAX_USES + 9))
    assert len(json.loads(report.encode(many))["uses"]) == MAX_USES
    value = json.loads(report.encode(many))
    value["uses"] *= 2
    assert len(report.decode(json.dumps(value).encode()).uses) == MAX_USES
    assert report.decode(body(problem="x" * 9999)).uses == (replace(USE, problem="x" * 300),)


def test_share_use_file_name_of_a_task_is_words_only() -> None:
    """A file name may have any bytes: such as are no UTF-8, or control a terminal."""
    (use,) = report.decode(body(problem="has loaded /tmp/libcuda.so\udcff\x1b[2J")).uses
    assert use.problem == "has loaded /tmp/libcuda.so\\udcff\\x1b[2J"


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, []])
@pytest.mark.parametrize("name", ["memory_mib", "most_mib", "compute_milli", "refused", "missed", "looks"])
def test_share_use_amount_that_is_malformed_makes_a_report_unreadable(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match="amounts must be whole numbers"):
        report.decode(body(**{name: wrong}))
