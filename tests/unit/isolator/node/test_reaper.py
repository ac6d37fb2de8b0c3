"""What dead owners of shares left is undone, and nobody who was stopped keeps the monitor from its work."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Holding, Ledger, Owner
from isolator.gpus.share_claims import Room, ShareClaim
from isolator.node import reaper
from isolator.node.reaper import end
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method, Share

CARD = GpuId("GPU-1")


def test_who_hangs_at_work_on_a_card_does_not_stop_the_reaper(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    claim = ShareClaim(Share(250, 2000, 2000, Method.TURNS), {CARD: Room(8000)})
    assert isinstance(ledger.claim("old.1", [CARD], dead, share=claim), Claimed)
    (holding,) = ledger.holdings()
    with ledger.turn([CARD]):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="at work on the shares of GPU-1"):
            end(ledger, holding, timeout_s=0.1)
        assert time.monotonic() - began < 15.0, "it waits as long as it is told, not for a whole turn"
    assert ledger.holdings() == (holding,)
    assert end(ledger, holding, timeout_s=0.1) == []
    assert ledger.holdings() == ()


def test_what_one_dead_task_left_keeps_nobody_from_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    for task, gpu in (("odd.1", "GPU-1"), ("old.2", "GPU-2")):
        assert isinstance(ledger.claim(task, [GpuId(gpu)], dead), Claimed)

    def end_others(ledger: Ledger, holding: Holding) -> list[int]:
        if holding.task == "odd.1":
            raise ValueError("nobody thought of this")
        return end(ledger, holding)

    monkeypatch.setattr(reaper, "end", end_others)
    reaper.reap(ledger)
    assert [holding.task for holding in ledger.holdings()] == ["odd.1"]
