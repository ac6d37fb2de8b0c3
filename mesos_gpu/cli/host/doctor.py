"""`mesos-gpu doctor`: is this host fit to run GPU tasks?"""

import os

import click

from isolator.gpus.ledger import directory
from isolator.node import doctor as checks
from isolator.node.findings import Finding, Level
from isolator.node.monitor import probe_from
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, json_option
from mesos_gpu.errors import Unavailable


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check that this host is fit to run GPU tasks."""
    findings = [
        *checks.diagnose(probe_from(os.environ), directory(), os.environ),
        *_of_scheduler(ctx.ensure_object(App)),
    ]
    if as_json:
        output.document(
            [
                {"check": f.check, "level": f.level.value, "text": f.text, "remedy": f.remedy or None}
                for f in findings
            ]
        )
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            output.line(f"{finding.level.value:<4}  {finding.check:<{width}}  {finding.text}")
            if finding.remedy:
                output.line(f"{'':{width + 8}}To fix: {finding.remedy}")
    ctx.exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)


def _of_scheduler(app: App) -> list[Finding]:
    """Nothing where none is named and none runs: an agent's host need not know it."""
    try:
        reach = app.reach()
    except Unavailable:
        return []
    from mesos_gpu.cli.host.of_scheduler import of_scheduler

    return of_scheduler(reach)
