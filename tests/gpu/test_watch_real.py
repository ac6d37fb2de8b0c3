"""The watch: a client with a libcuda of its own, and more memory than its share, is found within ten seconds."""

import os
import time
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.shares.watch import LOOK_S, Watch
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.sharing.excess import END_LOOKS
from tests.gpu.sites import CHUNK_MIB, MIB, Record, Site, ready
from volumes.keys import REPLACED

SHARE_MIB, SLACK_MIB = 1024, 512
KNOWN_S = 10.0
TASK = TaskId("train.1")


def test_a_client_that_passes_our_library_by_is_found(site: Site, record: Record, tmp_path: Path) -> None:
    volume = tmp_path / "volumes/builds/b1/lib64"
    volume.mkdir(parents=True)
    _, name, real = REPLACED[0]
    (volume / name).write_bytes(Path(site.ours[name]).read_bytes())
    os.link(site.libraries[name], volume / real)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    env = {"MESOS_GPU_SHARE_SLACK_MIB": str(SLACK_MIB), "MESOS_GPU_VOLUMES": str(tmp_path / "volumes")}
    watch, share = Watch(ledger, env), Share(250, SHARE_MIB, SHARE_MIB, Method.SHIM_WINDOWS)
    with site.task().program() as program:
        rooms, cards = {site.card.id: Room(site.whole_mib)}, (CardTrace(site.card.id, "windows", ""),)
        owner = Owner.of(program.pid)
        claim = ledger.claim(TASK, [site.card.id], owner, share=ShareClaim(share, rooms, cards))
        assert isinstance(claim, Claimed)
        wanted_mib = SHARE_MIB + 2 * SLACK_MIB
        assert ready(program).ask(f"allocs({CHUNK_MIB}, {wanted_mib // CHUNK_MIB})") == str(
            wanted_mib // CHUNK_MIB
        )
        if program.pid not in (site.read().pids or ()):
            pytest.skip("needs the host's pid namespace: NVML names other pids")
        began = time.monotonic()
        (use,) = watch.look([site.read()])
        while use.looks < END_LOOKS and time.monotonic() < began + 60:
            time.sleep(LOOK_S if site.is_real else 0.0)
            (use,) = watch.look([site.read()])
        took_s = time.monotonic() - began
    record("a client beyond its share", {"known after, s": took_s, "problem": use.problem})
    assert use.looks == END_LOOKS
    assert took_s <= KNOWN_S
    assert use.problem.startswith(f"process {owner.pid} ")
    assert (use.memory_mib or 0) >= wanted_mib


def test_our_library_is_not_named(site: Site, tmp_path: Path) -> None:
    """What the same look says of a client that keeps to its share."""
    task = site.task(SHARE_MIB)
    volume = tmp_path / "volumes/builds/b1/lib64"
    volume.mkdir(parents=True)
    for name in REPLACED[0][1:]:
        os.link(task.path / "lib64" / name, volume / name)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    watch = Watch(ledger, {"MESOS_GPU_VOLUMES": str(tmp_path / "volumes")})
    share = Share(250, SHARE_MIB, SHARE_MIB, Method.SHIM_WINDOWS)
    with task.program() as program:
        rooms, cards = {site.card.id: Room(site.whole_mib)}, (CardTrace(site.card.id, "windows", ""),)
        ledger.claim(TASK, [site.card.id], Owner.of(program.pid), share=ShareClaim(share, rooms, cards))
        assert ready(program).ask(f"alloc({CHUNK_MIB})") == "0"
        (use,) = watch.look([site.read()])
        assert "libcuda" not in use.problem
        assert use.memory_mib is None or use.memory_mib * MIB > 0
