"""Options of the REST interface's address."""

import click

from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address of the REST interface."),
    click.option(
        "--insecure-no-authentication",
        is_flag=True,
        help="Allow a --host other than loopback without authentication: everyone who reaches it has full control.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Host name that clients may use for this host, besides that of --webui-url; may be repeated.",
    ),
    click.option(
        "--port",
        default=8080,
        show_default=True,
        type=click.IntRange(0, 65535),
        help="Port of the REST interface.",
    ),
    click.option(
        "--webui-url", metavar="URL", help="URL that the Mesos master links to; default: the REST interface."
    ),
)
