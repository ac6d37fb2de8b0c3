"""Eight processes fight over four GPUs: two claims of one GPU never both stand. Four for the last MiB of one."""

import contextlib
import multiprocessing as mp
import os
import random
import sqlite3
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Barrier
from pathlib import Path

from isolator.gpus.ledger import Claimed, Ledger, Owner, Refused
from isolator.gpus.share_claims import Room, ShareClaim
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method, Share

PROCESSES, ROUNDS = 8, 60
RACERS, RACES = 4, 800  # each
CARD_MIB = 1000
GPUS = [GpuId(f"GPU-{n}") for n in range(4)]


def fight(path: Path, seed: int, held: "SynchronizedArray[int]", wins: "SynchronizedArray[int]") -> None:
    """Claim, check that nobody else is inside, release. `held` counts who thinks to hold each GPU."""
    chance, ledger, owner = random.Random(seed), Ledger(path), Owner.of(os.getpid())
    for number in range(ROUNDS):
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


def test_ledger_never_holds_a_gpu_twice(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    held, wins = context.Array("i", len(GPUS)), context.Array("i", PROCESSES)
    path = tmp_path / "ledger.sqlite"
    fighters = [context.Process(target=fight, args=(path, n, held, wins)) for n in range(PROCESSES)]
    for process in fighters:
        process.start()
    for process in fighters:
        process.join(100)
    assert [process.exitcode for process in fighters] == [0] * PROCESSES
    assert sum(wins[:]) > PROCESSES * ROUNDS / 10, "it was a fight, not a famine"
    assert Ledger(path).holdings() == ()


def race(
    path: Path, seed: int, start: "Barrier", held: "SynchronizedArray[int]", wins: "SynchronizedArray[int]"
) -> None:
    """Claim what is left of a card that another share has all but for a little; `held`: MiB that all claimed."""
    ledger, owner, chance = Ledger(path), Owner.of(os.getpid()), random.Random(seed)
    start.wait(60)
    for number in range(RACES):
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


def test_ledger_gives_the_last_mib_to_one_racer(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    held, wins = context.Array("i", [CARD_MIB - 1]), context.Array("i", RACERS)
    start = context.Barrier(RACERS)
    path = tmp_path / "ledger.sqlite"
    ledger, me = Ledger(path), Owner.of(os.getpid())
    most = ShareClaim(Share(1, CARD_MIB - 1, CARD_MIB - 1, Method.SHIM_WINDOWS), {GPUS[0]: Room(CARD_MIB)})
    assert ledger.claim("most", GPUS[:1], me, share=most) == Claimed()
    with contextlib.closing(
        sqlite3.connect(path)
    ) as db:  # as long as one is open, no other writes the file back
        db.execute("SELECT count(*) FROM claims").fetchone()
        racers = [context.Process(target=race, args=(path, n, start, held, wins)) for n in range(RACERS)]
        for process in racers:
            process.start()
        for process in racers:
            process.join(200)
    assert [process.exitcode for process in racers] == [0] * RACERS
    assert min(wins[:]) > 0, "it was a race"
    assert sum(wins[:]) < RACERS * RACES * 0.9, "with losers"
    assert [holding.task for holding in ledger.holdings()] == ["most"]
