"""Where the REST interface is."""

import click

from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address of the REST interface."),
    click.option(
        "--insecure-no-authentication",
        is_flag=True,
        help="Let --host be other than loopback: whoever reaches it can do everything.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Name by which clients may call this host, as that of --webui-url; may be repeated.",
    ),
    click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Its port."),
    click.option(
        "--webui-url", metavar="URL", help="URL that the Mesos master links to; default: the REST interface."
    ),
)
