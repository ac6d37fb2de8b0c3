"""Options of several schedulers of one cluster: their ZooKeeper path and this scheduler's URL."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from mesos_gpu.adapters.replicated.place import Place, parsed
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.addresses import is_loopback_host
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class HaOptions:
    """Values of the options with the same names; `ha`: None for a single scheduler."""

    ha: Place | None = None
    ha_url: str | None = None
    ha_cacert: Path | None = None
    ha_begin_anew: bool = False

    def url(self, host: str, port: int, *, tls: bool) -> str:
        """Return the URL at which the other schedulers reach this one, without a trailing slash.

        Args:
            host: Address that this scheduler listens on.
            port: Port that this scheduler listens on.
            tls: Whether this scheduler serves TLS.

        Raises:
            BadConfiguration: Others cannot reach the listening address and --ha-url is missing, or --ha-url is no valid
                address.
        """
        scheme = "https" if tls else "http"
        if self.ha_url is not None:
            return _checked(self.ha_url.rstrip("/"), scheme)
        local = self.ha is not None and all(
            is_loopback_host(server.rpartition(":")[0]) for server in self.ha.hosts.split(",")
        )
        if host in ("0.0.0.0", "::", "") or (is_loopback_host(host) and not local):  # nosec B104 # compared with
            raise BadConfiguration(
                f"--ha: other schedulers cannot reach this one at --host {host or '(every address)'}",
                remedy="set --host to an address that they reach, and --ha-url http://NAME:PORT if it differs",
            )
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def context(self, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
        """Return the TLS context for connections to other schedulers; `certificate` of this scheduler is shown to them.

        Raises:
            BadConfiguration: A file cannot be read or used.
        """
        return client_context(Trust(self.ha_cacert, certificate, key))


def _checked(url: str, scheme: str) -> str:
    remedy = f"give {scheme}://NAME:PORT"
    try:
        parts = urlsplit(url)
        reachable = bool(parts.hostname) and parts.port is not None
    except ValueError:
        reachable = False
    if not reachable or parts.scheme not in ("http", "https") or parts.path or parts.query or parts.username:
        raise BadConfiguration(f"--ha-url {url!r} is not a valid address of a scheduler", remedy=remedy)
    if parts.scheme != scheme:
        raise BadConfiguration(f"--ha-url {url}: this scheduler serves {scheme}", remedy=remedy)
    return url


def _place(_ctx: click.Context, _param: click.Parameter, given: str | None) -> Place | None:
    try:
        return None if given is None else parsed(given)
    except MesosGpuError as error:
        raise click.BadParameter(f"{error.what}; {error.remedy}") from error


HA: Final = Section(
    HaOptions,
    (
        click.option(
            "--ha",
            envvar="MESOS_GPU_HA",
            callback=_place,
            metavar="zk://USER:PASSWORD@HOST:PORT,…/PATH",
            help="Run as one of several schedulers, one of which leads: the place in ZooKeeper where they meet, or "
            "file://FILE "
            "that contains it. Each needs its own --state. Default: a single scheduler.",
        ),
        click.option(
            "--ha-url",
            envvar="MESOS_GPU_HA_URL",
            metavar="URL",
            help="URL at which the other schedulers reach this one; default: its listening address.",
        ),
        click.option(
            "--ha-cacert",
            type=parse.FILE,
            envvar="MESOS_GPU_HA_CACERT",
            help="PEM file of the authorities trusted for the other schedulers' certificates; default: those of this "
            "host.",
        ),
        click.option(
            "--ha-begin-anew",
            is_flag=True,
            help="Begin a new log from this state, after ZooKeeper lost the old one; for one start only.",
        ),
    ),
)
