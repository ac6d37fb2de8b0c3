"""What dead owners of shares left is undone, and nobody who was stopped keeps the monitor from its work."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Holding, Ledger, Owner, Trace
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.node import reaper
from isolator.node.reaper import end
from isolator.shares.mps import daemon as mps
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method, Share

CARD = GpuId("GPU-1")


def test_reaper_is_not_stopped_by_a_turn_that_hangs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    claim = ShareClaim(Share(250, 2000, 2000, Method.TURNS), {CARD: Room(8000)})
    assert isinstance(ledger.claim("old.1", [CARD], dead, share=claim), Claimed)
    (holding,) = ledger.holdings()
    with ledger.turn([CARD]), pytest.raises(Unavailable, match=r"working on the shares of GPU-1 for 0\.1 s"):
        end(ledger, holding, timeout_s=0.1)
    assert ledger.holdings() == (holding,)
    assert end(ledger, holding) == []
    assert ledger.holdings() == ()


def test_a_dead_task_ends_also_if_its_clients_cannot_be_drained(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    odd = CardTrace(CARD, mps.KIND, "no domain")
    claim = ShareClaim(Share(250, 2000, 2000, Method.SHIM_MPS2, "alice"), {CARD: Room(8000)}, (odd,))
    assert isinstance(ledger.claim("old.1", [CARD], dead, share=claim), Claimed)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "MESOS_TASK_ID": "old.1"}) as left:
        with pytest.raises(BadConfiguration):  # the row stays, and is told of
            end(ledger, ledger.holdings()[0], timeout_s=30)
        assert left.wait(30) == -signal.SIGKILL
    assert ledger.holdings() == ()


def test_traces_of_a_dead_task_are_undone_last_first(tmp_path: Path) -> None:
    """A trace in their midst that cannot be undone shows the order."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    first, last = tmp_path / "first", tmp_path / "last"
    traces = (Trace("nodes", str(first)), Trace("odd", "thing"), Trace("nodes", str(last)))
    assert isinstance(ledger.claim("old.1", [CARD], dead, traces=traces), Claimed)
    first.mkdir()
    last.mkdir()
    (holding,) = ledger.holdings()
    with pytest.raises(BadConfiguration, match="odd"):
        end(ledger, holding)
    assert (first.exists(), last.exists()) == (True, False)
    assert ledger.holdings() == (holding,)


def test_sandbox_is_sealed_before_what_its_image_wrote_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    written = tmp_path / "written"
    written.mkdir()
    traces = (Trace("rootfs", str(written)), Trace("sandbox", "sandbox"))
    ledger.claim("old.1", (), dead, traces=traces)

    def seal(*_: object) -> None:
        assert written.exists()
        raise PermissionError

    monkeypatch.setattr(reaper, "seal", seal)
    reaper.seal_left(ledger)
    assert written.exists()
    assert [holding.task for holding in ledger.holdings()] == ["old.1"]
    monkeypatch.setattr(reaper, "seal", lambda *_: None)
    reaper.seal_left(ledger)
    assert not written.exists()
    assert ledger.holdings() == ()


def test_reaper_goes_on_after_a_task_that_cannot_be_undone(
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


def test_sandbox_that_takes_long_to_seal_keeps_no_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes while two others take long."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dead = replace(Owner.of(os.getpid()), boot_id="an earlier one")
    tries: list[tuple[str, float]] = []

    def claim(*names: str) -> None:
        for name in names:
            ledger.claim(f"{name}.1", (), dead, container=name, traces=(Trace("sandbox", name),))

    def seal(sandbox: str, timeout_s: float, *_: object) -> None:
        tries.append((sandbox, timeout_s))
        if sandbox.startswith("slow"):
            if tries[-1] == ("slow1", reaper.SEAL_S):
                claim("late")
            raise TimeoutError

    claim("slow1", "slow2", "quick")
    monkeypatch.setattr(reaper, "seal", seal)
    reaper.seal_left(ledger)
    assert tries == [
        ("slow1", reaper.SOON_S),
        ("slow2", reaper.SOON_S),
        ("quick", reaper.SOON_S),
        ("slow1", reaper.SEAL_S),
        ("late", reaper.SOON_S),
        ("slow2", reaper.SEAL_S),
    ]
    assert [holding.container for holding in ledger.holdings()] == ["slow1", "slow2"]
