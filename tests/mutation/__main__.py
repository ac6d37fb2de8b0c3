"""Mutation testing: `python -m tests.mutation [--seed 7] [--count 100] [PATH...]`; needs root.

scripts/mutants.py draws mutants of the product: modules with one small fault each. For each, tests run in stages until
one fails: unit tests that import the module, the recorded decisions of the engine, unit tests of the module's folder,
others that import it, and more that use its package. A mutant that no test notices survives: build/mutants-SEED.txt has
its line and its diff. What survives here may yet be noticed by a test of the gate that no stage has, so the rate is an
upper bound.

Tests run in copies of the repository, one for each worker, in which the mutant is a file as any other: processes that
tests start have the fault, too. A worker has namespaces of processes and of mounts, for a mutant may kill or remove
more than it should. It imports the libraries once and forks for each stage.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.stages import ROOT
from tests.mutation.worker import Worker

BUILD: Final = ROOT / "build"
MUTATED: Final = (
    "mesos_gpu/policy",
    "mesos_gpu/engine",
    "isolator/gpus",
    "isolator/devices",
    "isolator/node",
)
MAX_SURVIVORS_PERCENT: Final = 15


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant as scripts/mutants.py prints it."""

    path: str
    line: int
    diff: str
    source: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What the tests made of a mutant.

    Attributes:
        mutant: The mutant.
        test: The test that failed, or a few words about the failure; empty for a survivor.
        stage: Number of the last stage that ran, from 1; 0 if no stage has a test.
    """

    mutant: Mutant
    test: str
    stage: int


def draw(count: int, seed: int, paths: Sequence[str]) -> list[Mutant]:
    """Draw mutants, in an environment that has mutmut."""
    tools = subprocess.run(
        [ROOT / "scripts/tools.sh"], check=True, capture_output=True, text=True
    ).stdout.strip()
    drawn = subprocess.run(
        [f"{tools}/python", "scripts/mutants.py", str(count), str(seed), *paths],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return [Mutant(**json.loads(line)) for line in drawn.stdout.splitlines()]


def run(mutants: Sequence[Mutant], workers: int, last_stage: int | None) -> Iterator[Fate]:
    """Try all mutants; the fates, in the order in which they are known."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for number in range(workers):
        idle.put(Worker(number))

    def fate(mutant: Mutant) -> Fate:
        worker = idle.get()
        known = worker.try_one(mutant.path, mutant.source, last_stage)
        idle.put(worker)
        return Fate(mutant, *known)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for each in concurrent.futures.as_completed([pool.submit(fate, mutant) for mutant in mutants]):
            yield each.result()
    while not idle.empty():
        idle.get().close()


def unreliable(fates: Iterable[Fate]) -> str:
    """Run the tests that noticed mutants without a mutant; the first that fails, empty if none does."""
    names = sorted({fate.test for fate in fates if "::" in fate.test})
    worker = Worker(0)
    failed = worker.run(names)
    worker.close()
    return failed


def report(fates: Sequence[Fate], seed: int, path: Path) -> int:
    """Write the survivors to a file, and print the rate; their number in percent."""
    survivors = sorted(
        (fate.mutant for fate in fates if not fate.test), key=lambda each: (each.path, each.line)
    )
    percent = 100 * len(survivors) / len(fates)
    head = f"seed {seed}: {len(survivors)} of {len(fates)} mutants survive ({percent:.0f} %)"
    path.write_text(
        "\n\n".join([head, *(f"{each.path}:{each.line}\n{each.diff}" for each in survivors)]) + "\n"
    )
    print(f"{head}: {path}")
    return round(percent)


def main() -> int:
    """Draw, try, and report; 0 where few enough survive."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", default=MUTATED, help="folders or modules to mutate")
    parser.add_argument("--count", type=int, default=100, help="number of mutants")
    parser.add_argument(
        "--seed", type=int, default=None, help="the same seed draws the same mutants of the same code"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--last-stage", type=int, default=None, help="4: all that are near")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root, for namespaces that mutants do not leave")
    seed = random.randrange(10_000) if options.seed is None else options.seed
    began_at = time.monotonic()
    fates: list[Fate] = []
    for fate in run(draw(options.count, seed, options.paths), options.workers, options.last_stage):
        fates.append(fate)
        where = f"{fate.mutant.path}:{fate.mutant.line}"
        print(f"{len(fates):4} {where}: {fate.test or 'SURVIVES'} (stage {fate.stage})", flush=True)
    if failed := unreliable(fates):
        print(f"{failed} fails without a mutant: these results mean nothing", file=sys.stderr)
        return 2
    percent = report(fates, seed, BUILD / f"mutants-{seed}.txt")
    print(f"{time.monotonic() - began_at:.0f} s")
    return int(percent > MAX_SURVIVORS_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
