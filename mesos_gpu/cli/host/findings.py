"""Output of check findings, and the exit code that follows."""

from collections.abc import Sequence

import click

from isolator.node.findings import Finding, Level, lines
from mesos_gpu.cli import output


def told(ctx: click.Context, findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print findings and end the command: with exit code 1 if one is a failure."""
    if as_json:
        output.document(
            [
                {"check": f.check, "level": f.level.value, "text": f.text, "remedy": f.remedy or None}
                for f in findings
            ]
        )
    else:
        for line in lines(findings):
            output.line(line)
    ctx.exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)
