"""Eight processes fight over four GPUs: two claims of one GPU never both stand."""

import multiprocessing as mp
import os
import random
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

from isolator.gpus.ledger import Claimed, Ledger, Owner
from mesos_gpu.model.ids import GpuId

PROCESSES, ROUNDS = 8, 60
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


def test_no_gpu_is_ever_held_twice(tmp_path: Path) -> None:
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
