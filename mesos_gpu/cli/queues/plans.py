"""Preview of a change of the tree of queues."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.versioned.changing import print_diff, print_remarks
from mesos_gpu.cli.versioned.files import difference
from mesos_gpu.cli.versioned.kept import Documents, Shown
from mesos_gpu.model.words import counted

_FIT: Final = Fit(paths=("QUEUE",), leave=("PENDING", "POOL", "HELD"))
_MAX_NAMED: Final = 10  # jobs


def try_out(
    client: Client,
    documents: Documents,
    latest: Shown,
    wanted: Mapping[str, Any],
    source: str,
    *,
    as_json: bool,
) -> None:
    """Print what a document would change, without applying it."""
    body = {**wanted, "version": latest["version"]}
    plan = client.call("POST", "/v1/plan/queues", dict, body=body)
    if as_json:
        output.document(plan)
        return
    print_diff(list(difference(documents.kind, latest, wanted, source)))
    print_remarks(documents.kind, latest)
    show(plan)
    for warning in plan["warnings"]:
        output.note(warning)


def show(plan: Mapping[str, Any]) -> None:
    """Print the plan of a change."""
    click.echo()
    output.table(
        ("QUEUE", "POOL", "GUARANTEE", "FAIR_SHARE", "GAINS", "IF_ASKED", "GIVES_BACK", "HELD", "PENDING"),
        [
            (
                queue_plan["path"],
                queue_plan["pool"],
                _change(queue_plan["guarantee_before_gpus"], queue_plan["guarantee_gpus"]),
                _change(queue_plan["due_before_gpus"], queue_plan["due_gpus"]),
                queue_plan["gains_gpus"],
                queue_plan["if_asked_gpus"],
                queue_plan["gives_back_gpus"],
                queue_plan["held_gpus"],
                queue_plan["pending_gpus"],
            )
            for queue_plan in plan["queues"]
        ],
        empty="There are no GPUs to divide.",
        fit=_FIT,
    )
    borrowers = plan["borrowers"]
    if borrowers:
        more = " …" if len(borrowers) > _MAX_NAMED else ""
        named = ", ".join(borrowers[:_MAX_NAMED])
        count = counted(len(borrowers), "running job")
        output.line(f"{count} would no longer be within a guarantee: {named}{more}")
    for reclaim in plan["reclaims"][:_MAX_NAMED]:
        givers = "; ".join(_giver(giver) for giver in reclaim["givers"])
        when = output.expected(reclaim["at"])
        output.line(f"Job {reclaim['job_id']} of queue {reclaim['queue']} would preempt, {when}: {givers}")
    if len(plan["reclaims"]) > _MAX_NAMED:
        output.line(f"and further preemptions by {counted(len(plan['reclaims']) - _MAX_NAMED, 'more job')}")
    _show_blocks(plan["blocks"])


def _show_blocks(blocks: Sequence[Mapping[str, str]]) -> None:
    """Print the work that would wait or be refused: jobs and apps first, then commands."""
    if not blocks:
        return
    click.echo()
    output.line("Would wait or be refused:")
    for block in blocks[:_MAX_NAMED]:
        kind = "" if block["kind"] == "command" else f"{block['kind']} "
        output.line(f"  {kind}{block['name']}: {block['reason']}")
    if len(blocks) > _MAX_NAMED:
        output.line(f"  and {len(blocks) - _MAX_NAMED} more (--json)")


def _giver(giver: Mapping[str, Any]) -> str:
    more = " …" if len(giver["jobs"]) > _MAX_NAMED else ""
    return f"{', '.join(giver['jobs'][:_MAX_NAMED])}{more} of queue {giver['queue']}, {counted(giver['gpus'], 'GPU')}"


def _change(before: float | None, after: float | None) -> str | None:
    if before == after:
        return None if after is None else f"{after:g}"
    shown = ("-" if value is None else f"{value:g}" for value in (before, after))
    return " > ".join(shown)
