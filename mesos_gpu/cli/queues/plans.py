"""What a change of the tree of queues would do, for people."""

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
    """Say what a document would change, and change nothing."""
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
    """Print a plan."""
    click.echo()
    output.table(
        ("QUEUE", "POOL", "GUARANTEE", "FAIR_SHARE", "GAINS", "IF_ASKED", "GIVES_BACK", "HELD", "PENDING"),
        [
            (
                each["path"],
                each["pool"],
                _change(each["guarantee_before_gpus"], each["guarantee_gpus"]),
                _change(each["due_before_gpus"], each["due_gpus"]),
                each["gains_gpus"],
                each["if_asked_gpus"],
                each["gives_back_gpus"],
                each["held_gpus"],
                each["pending_gpus"],
            )
            for each in plan["queues"]
        ],
        empty="There are no GPUs that anything would be due of.",
        fit=_FIT,
    )
    borrowers = plan["borrowers"]
    if borrowers:
        more = " …" if len(borrowers) > _MAX_NAMED else ""
        named = ", ".join(borrowers[:_MAX_NAMED])
        count = counted(len(borrowers), "running job")
        output.line(f"{count} would no longer be within a guarantee: {named}{more}")
    for each in plan["reclaims"][:_MAX_NAMED]:
        givers = "; ".join(_giver(giver) for giver in each["givers"])
        when = output.expected(each["at"])
        output.line(f"For job {each['job_id']} of queue {each['queue']} would be stopped, {when}: {givers}")
    if len(plan["reclaims"]) > _MAX_NAMED:
        output.line(f"and others for {counted(len(plan['reclaims']) - _MAX_NAMED, 'more job')}")
    _show_blocks(plan["blocks"])


def _show_blocks(blocks: Sequence[Mapping[str, str]]) -> None:
    """Print the work that would wait or be refused, jobs and apps before commands."""
    if not blocks:
        return
    click.echo()
    output.line("Would wait or be refused:")
    for each in blocks[:_MAX_NAMED]:
        kind = "" if each["kind"] == "command" else f"{each['kind']} "
        output.line(f"  {kind}{each['name']}: {each['reason']}")
    if len(blocks) > _MAX_NAMED:
        output.line(f"  and {len(blocks) - _MAX_NAMED} more (--json)")


def _giver(giver: Mapping[str, Any]) -> str:
    more = " …" if len(giver["jobs"]) > _MAX_NAMED else ""
    return f"{', '.join(giver['jobs'][:_MAX_NAMED])}{more} of queue {giver['queue']}, {counted(giver['gpus'], 'GPU')}"


def _change(before: float | None, after: float | None) -> str | None:
    if before == after:
        return None if after is None else f"{after:g}"
    shown = ("-" if each is None else f"{each:g}" for each in (before, after))
    return " > ".join(shown)
