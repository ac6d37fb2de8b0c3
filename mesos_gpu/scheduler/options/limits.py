"""How much one caller may ask of the REST interface, and where its apps' checks may go."""

from ipaddress import ip_network
from typing import Final

import click

from mesos_gpu.access.rate import Limits
from mesos_gpu.policy.apps.outward import Network, Outward
from mesos_gpu.scheduler.options.parse import NumberRange
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
            type=NumberRange(0, 1e6),
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
        click.option(
            "--unnamed-rate",
            "unnamed_rate_per_s",
            default=_DEFAULT.unnamed_rate_per_s,
            show_default=True,
            type=NumberRange(0, 1e6),
            metavar="PER_S",
            help="Requests a second of an address that prove no name, where names are asked for; 0: any number.",
        ),
        click.option(
            "--unnamed-burst",
            default=_DEFAULT.unnamed_burst,
            show_default=True,
            type=click.IntRange(1, 10**9),
            metavar="N",
            help="Such requests at once, after a pause.",
        ),
        click.option(
            "--address-connections",
            "connections",
            default=_DEFAULT.connections,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Connections of one address that are idle or slow; one more ends the oldest of them; 0: any number. "
            "Trusted proxies are not counted.",
        ),
    ),
)


def _networks(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[Network, ...]:
    """ADDRESS or ADDRESS/BITS, each."""
    try:
        return tuple(ip_network(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(f"{error}; a network is ADDRESS/BITS, as 169.254.0.0/16") from error


CHECKS: Final = Section(
    Outward,
    (
        click.option(
            "--check-network",
            "check_networks",
            multiple=True,
            callback=_networks,
            metavar="NETWORK",
            help="Addresses that checks of apps may go to though they are loopback, link-local, multicast or a cloud's "
            "metadata; more than once for several.",
        ),
        click.option(
            "--check-low-ports",
            is_flag=True,
            help="Let checks of apps name ports below 1024 that their tasks do not have.",
        ),
    ),
)
