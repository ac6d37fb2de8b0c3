"""`mesos-gpu simulate replay`: a scheduler's journal, decided again."""

import time
from pathlib import Path
from typing import Any

import click

from mesos_gpu.cli import output
from mesos_gpu.simulate.replay import Difference, Replayed, Result, files_of, replay


@click.command(name="replay")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--until", type=click.IntRange(1), metavar="SEQ", help="Stop after the step with this number.")
@click.option("--explain", is_flag=True, help="Print each step that decided something, with its event.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx: click.Context, path: Path, until: int | None, explain: bool, as_json: bool) -> None:
    """Replay a scheduler's journal, and compare the decisions with the recorded ones.

    PATH is a directory that `mesos-gpu scheduler --journal` wrote, or one file of it. Exits with 1 at the first
    difference.
    """
    files = files_of(path)
    size = sum(file.stat().st_size for file in files)
    began, story, shown_at = time.monotonic(), list[dict[str, Any]](), 0.0

    def told(step: Replayed) -> None:
        if explain and step.decided:
            if as_json:
                story.append(_told(step))
            else:
                _print_step(step)

    def progress(read: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at > 0.1:
            shown_at = now
            output.status_line.show(f"{100 * read / size:.0f} % of {size / 2**20:.1f} MiB")

    result = replay(files, until=until, told=told, progress=progress)
    output.status_line.clear()
    report = _document(result, max(time.monotonic() - began, 1e-9))
    if as_json:
        output.document({**report, "steps": story} if explain else report)
    else:
        _print(result, report)
    if not report["same"]:
        ctx.exit(1)


def _document(result: Result, took_s: float) -> dict[str, Any]:
    difference = result.first_difference
    return {
        "files": result.files,
        "events": result.events,
        "steps_per_s": round(result.events / took_s, 1),
        "decisions": result.decisions,
        "refused": result.refused,
        "same": difference is None,
        "first_difference": None if difference is None else _difference(difference),
        "warnings": result.warnings,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "seq": difference.seq,
        "at": difference.at,
        "file": difference.file,
        "what": difference.what,
        "event": difference.event,
        "recorded": list(difference.recorded),
        "replayed": list(difference.replayed),
    }


def _told(step: Replayed) -> dict[str, Any]:
    return {"seq": step.seq, "at": step.at, "event": step.event, "decided": list(step.decided)}


def _print_step(step: Replayed) -> None:
    output.status_line.clear()
    for words in step.decided:
        output.line(f"{output.stamp(step.at)}  {step.seq:>8}  {step.event}: {words}")


def _print(result: Result, report: dict[str, Any]) -> None:
    for words in result.warnings:
        output.note(words)
    rate = f"{result.events} events of {result.files} files, {report['steps_per_s']:.0f}/s"
    difference = result.first_difference
    if difference is None:
        output.line(f"{rate}: the same {result.decisions} decisions")
        return
    output.line(f"{rate}: step {difference.seq} in {difference.file} differs in its {difference.what}")
    for name, body in difference.event.items():
        output.line(f"{output.stamp(difference.at)}  {name} {body}")
    for title, lines in (("then", difference.recorded), ("now", difference.replayed)):
        for words in lines or ("nothing",):
            output.line(f"{title:<5} {words}")
