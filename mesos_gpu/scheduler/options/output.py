"""Options of the scheduler's log."""

import click

from mesos_gpu.scheduler import logs
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--log-level",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        help="Lowest level of messages logged to stderr; audit lines of changes are always logged.",
    ),
    click.option(
        "--log-format",
        default=logs.LogFormat.TEXT.value,
        show_default=True,
        type=click.Choice([form.value for form in logs.LogFormat]),
        help="Format of the log: text, or one JSON object per line.",
    ),
)
