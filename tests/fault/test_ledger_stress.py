"""Processes that claim the same GPUs at once: two claims of one GPU never both stand, nor two of its last MiB."""

import contextlib
import multiprocessing as mp
import os
import random
import sqlite3
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, Owner, Refused
from isolator.gpus.share_claims import Room, ShareClaim
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method, Share

#: Processes and rounds of each, in each run and in long ones.
FIGHTS = [pytest.param(3, 25, id="short"), pytest.param(8, 60, id="long", marks=pytest.mark.long)]
RACES = [pytest.param(3, 100, id="short"), pytest.param(4, 800, id="long", marks=pytest.mark.long)]
CARD_MIB = 1000
GPUS = [GpuId(f"GPU-{n}") for n in range(4)]


def fight(
    path: Path,
    seed: int,
    rounds: int,
    start: "Barrier",
    held: "SynchronizedArray[int]",
    wins: "SynchronizedArray[int]",
) -> None:
    """Claim, check that no other process holds the same, release. `held`: holders of each GPU by their own word."""
    chance, ledger, owner = random.Random(seed), Ledger(path), Owner.of(os.getpid())
    start.wait(60)
    for number in range(rounds):
        chosen = sorted(chance.sample(range(len(GPUS)), chance.randint(1, 3)))
        task = f"task-{seed}-{number}"
        if ledger.claim(task, [GPUS[n] for n in chosen], owner) != Claimed():
            continue
        with held.get_lock():
            for n in chosen:
                held[n] += 1
                assert held[n] == 1, f"{GPUS[n]} is held twice"
            wins[seed] += 1
        with held.get_lock():
            for n in chosen:
                held[n] -= 1
        ledger.release(task, owner)


@pytest.mark.parametrize(("processes", "rounds"), FIGHTS)
def test_ledger_never_holds_a_gpu_twice(tmp_path: Path, processes: int, rounds: int) -> None:
    context = mp.get_context("spawn")
    held, wins = context.Array("i", len(GPUS)), context.Array("i", processes)
    start = context.Barrier(processes)
    path = tmp_path / "ledger.sqlite"
    fighters = [
        context.Process(target=fight, args=(path, n, rounds, start, held, wins)) for n in range(processes)
    ]
    for process in fighters:
        process.start()
    for process in fighters:
        process.join(100)
    assert [process.exitcode for process in fighters] == [0] * processes
    assert sum(wins[:]) > processes * rounds / 10, "it was a fight, not a famine"
    assert Ledger(path).holdings() == ()


def race(
    path: Path,
    seed: int,
    races: int,
    start: "Barrier",
    held: "SynchronizedArray[int]",
    wins: "SynchronizedArray[int]",
    tries: "SynchronizedArray[int]",
) -> None:
    """Claim the last MiB of a card that another share has, until each racer has had it.

    Args:
        path: File of the ledger.
        seed: Number of this racer.
        races: Claims that each racer makes at least.
        start: Barrier of all racers.
        held: MiB that all racers hold now.
        wins: Claims that were granted, by racer.
        tries: Claims, by racer.
    """
    ledger, owner, chance = Ledger(path), Owner.of(os.getpid()), random.Random(seed)
    start.wait(60)
    number = 0
    while number < races or min(wins[:]) == 0:
        number += 1
        tries[seed] = number
        memory_mib = chance.choice((1, 1, 1, 2))
        share = Share(1, memory_mib, memory_mib, Method.SHIM_WINDOWS)
        claim = ShareClaim(share, {GPUS[0]: Room(CARD_MIB)})
        answer = ledger.claim(f"task-{seed}-{number}", GPUS[:1], owner, share=claim)
        if answer != Claimed():
            assert isinstance(answer, Refused)
            continue
        with held.get_lock():
            held[0] += memory_mib
            assert held[0] <= CARD_MIB, "more is held than there is"
            wins[seed] += 1
        with held.get_lock():
            held[0] -= memory_mib
        ledger.release(f"task-{seed}-{number}", owner)


@pytest.mark.parametrize(("racers", "races"), RACES)
def test_ledger_gives_the_last_mib_to_one_racer(tmp_path: Path, racers: int, races: int) -> None:
    context = mp.get_context("spawn")
    held, wins, tries = (
        context.Array("i", [CARD_MIB - 1]),
        context.Array("i", racers),
        context.Array("i", racers),
    )
    start = context.Barrier(racers)
    path = tmp_path / "ledger.sqlite"
    ledger, me = Ledger(path), Owner.of(os.getpid())
    most = ShareClaim(Share(1, CARD_MIB - 1, CARD_MIB - 1, Method.SHIM_WINDOWS), {GPUS[0]: Room(CARD_MIB)})
    assert ledger.claim("most", GPUS[:1], me, share=most) == Claimed()
    with contextlib.closing(
        sqlite3.connect(path)
    ) as db:  # as long as one is open, no other writes the file back
        db.execute("SELECT count(*) FROM claims").fetchone()
        running = [
            context.Process(target=race, args=(path, n, races, start, held, wins, tries))
            for n in range(racers)
        ]
        for process in running:
            process.start()
        for process in running:
            process.join(200)
    assert [process.exitcode for process in running] == [0] * racers
    assert sum(wins[:]) < sum(tries[:]) * 0.9, "with losers"
    assert [holding.task for holding in ledger.holdings()] == ["most"]
