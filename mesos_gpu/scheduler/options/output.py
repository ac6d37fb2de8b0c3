"""What the log says."""

import click

from mesos_gpu.scheduler import logs
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--log-level",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        help="Lowest level that is logged to stderr; requested changes are always logged.",
    ),
    click.option(
        "--log-format",
        default=logs.LogFormat.TEXT.value,
        show_default=True,
        type=click.Choice([form.value for form in logs.LogFormat]),
        help="Lines for people, or one JSON object a line.",
    ),
)
