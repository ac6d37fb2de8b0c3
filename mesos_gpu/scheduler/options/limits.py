"""How much one caller may ask of the REST interface."""

from typing import Final

import click

from mesos_gpu.access.rate import Limits
from mesos_gpu.scheduler.options.section import Section

_DEFAULT: Final = Limits()
LIMITS: Final = Section(
    Limits,
    (
        click.option(
            "--rate",
            "rate_per_s",
            default=_DEFAULT.rate_per_s,
            show_default=True,
            type=click.FloatRange(0, 1e6),
            metavar="PER_S",
            help="Requests a second of a name, or of an address that no name is known of; 0: any.",
        ),
        click.option(
            "--burst",
            default=_DEFAULT.burst,
            show_default=True,
            type=click.IntRange(1, 10**9),
            metavar="N",
            help="Its requests at once, after a pause.",
        ),
        click.option(
            "--concurrency",
            default=_DEFAULT.concurrency,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Its requests that are being answered at once; 0: any.",
        ),
        click.option(
            "--streams",
            default=_DEFAULT.streams,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Its requests that wait for something to happen, as /v2/events; 0: any.",
        ),
    ),
)
