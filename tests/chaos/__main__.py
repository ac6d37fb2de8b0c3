"""`python -m tests.chaos`: the scheduler's engine in a cluster with faults, and the shortest story of a failure."""

import time

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from tests.chaos.run import Failure, Result, run


@click.command()
@click.option("--steps", default=100_000, show_default=True, type=click.IntRange(1), help="Happenings.")
@click.option(
    "--seed", default=0, show_default=True, type=int, help="Of chance: the same seed does the same."
)
@json_option
@click.pass_context
def chaos(ctx: click.Context, steps: int, seed: int, as_json: bool) -> None:
    """Search the engine for faults: lost agents and messages, restarts, sick GPUs, drains, changes of apps.

    After each step invariants are checked: no GPU is granted twice, no job is lost or runs twice, nothing starves,
    apps keep within their upgradeStrategy, and every effect has its reason. Exits with 1 and the shortest story
    found when one is broken.
    """
    began, took_s = time.monotonic(), 0.0

    def progress(done: int) -> None:
        nonlocal took_s
        took_s = max(time.monotonic() - began, 1e-9)
        rate = done / took_s
        output.status_line.show(f"{done} of {steps} steps, {rate:.0f}/s")

    result = run(steps, seed, progress)
    output.status_line.clear()
    if as_json:
        output.document(_document(result, took_s))
    else:
        _print(result, took_s)
    if result.failure is not None:
        ctx.exit(1)


def _document(result: Result, took_s: float) -> dict[str, object]:
    failure = result.failure
    return {
        "seed": result.seed,
        "steps": result.steps,
        "seconds": round(took_s, 2),
        "steps_per_s": round(result.steps / took_s, 1),
        "counts": dict(sorted(result.counts.items())),
        "failure": None if failure is None else _failure(failure),
    }


def _failure(failure: Failure) -> dict[str, object]:
    return {
        "rule": failure.rule,
        "words": failure.words,
        "step": failure.step,
        "acts": len(failure.acts),
        "story": list(failure.story),
        "concerned": list(failure.concerned),
    }


def _print(result: Result, took_s: float) -> None:
    rows = sorted(result.counts.items(), key=lambda item: (-item[1], item[0]))
    output.table(("EVENT OR CALL", "TIMES"), rows, empty="")
    rate = f"{result.steps} steps in {took_s:.1f} s, {result.steps / took_s:.0f}/s"
    failure = result.failure
    if failure is None:
        output.line(f"{rate}, seed {result.seed}: every invariant held")
        return
    output.line(f"{rate}, seed {result.seed}: step {failure.step} broke an invariant")
    output.line("")
    output.line(f"{failure.rule}: {failure.words}")
    output.line("")
    output.line(f"The shortest story found, {len(failure.acts)} acts:")
    for told in failure.story:
        output.line(told)
    output.line("")
    for each in failure.concerned:
        output.line(each)


if __name__ == "__main__":
    chaos(prog_name="python -m tests.chaos")
