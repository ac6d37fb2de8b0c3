"""Options of request limits per caller, and of addresses that health checks may connect to."""

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
            help="Requests per second of a user, or of an address without authentication; 0: no limit.",
        ),
        click.option(
            "--burst",
            default=_DEFAULT.burst,
            show_default=True,
            type=click.IntRange(1, 10**9),
            metavar="N",
            help="Requests of a user or address at once, after a pause.",
        ),
        click.option(
            "--concurrency",
            default=_DEFAULT.concurrency,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Concurrent requests of a user or address; 0: no limit.",
        ),
        click.option(
            "--streams",
            default=_DEFAULT.streams,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Concurrent streaming requests of a user or address, such as /v2/events; 0: no limit.",
        ),
        click.option(
            "--unnamed-rate",
            "unnamed_rate_per_s",
            default=_DEFAULT.unnamed_rate_per_s,
            show_default=True,
            type=NumberRange(0, 1e6),
            metavar="PER_S",
            help="Unauthenticated requests per second of an address, if authentication is on; 0: no limit.",
        ),
        click.option(
            "--unnamed-burst",
            default=_DEFAULT.unnamed_burst,
            show_default=True,
            type=click.IntRange(1, 10**9),
            metavar="N",
            help="Unauthenticated requests of an address at once, after a pause.",
        ),
        click.option(
            "--address-connections",
            "connections",
            default=_DEFAULT.connections,
            show_default=True,
            type=click.IntRange(0),
            metavar="N",
            help="Idle or slow connections of one address; one more closes the oldest of them; 0: no limit. Trusted "
            "proxies "
            "are exempt.",
        ),
    ),
)


def _networks(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(f"{error}; a network is ADDRESS/BITS, for example 169.254.0.0/16") from error


CHECKS: Final = Section(
    Outward,
    (
        click.option(
            "--check-network",
            "check_networks",
            multiple=True,
            callback=_networks,
            metavar="NETWORK",
            help="Network that health checks of apps may connect to although it is loopback, link-local, multicast "
            "or a "
            "cloud's metadata service; may be repeated.",
        ),
        click.option(
            "--check-low-ports",
            is_flag=True,
            help="Let health checks of apps use ports below 1024 that their tasks do not hold.",
        ),
    ),
)
