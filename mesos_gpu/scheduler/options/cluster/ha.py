"""Several schedulers of one cluster: where they meet, and how the others reach this one."""

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
    """What the options of the same names say. `ha`: None: this scheduler is alone."""

    ha: Place | None = None
    ha_url: str | None = None
    ha_cacert: Path | None = None
    ha_begin_anew: bool = False

    def url(self, host: str, port: int, *, tls: bool) -> str:
        """Where the others reach this scheduler, without a slash at its end.

        Args:
            host: That it listens on.
            port: Likewise.
            tls: Whether it speaks TLS.

        Raises:
            BadConfiguration: Others cannot reach what it listens on, and --ha-url does not say how they do; or that is
                no such address.
        """
        scheme = "https" if tls else "http"
        if self.ha_url is not None:
            return _checked(self.ha_url.rstrip("/"), scheme)
        local = self.ha is not None and all(
            is_loopback_host(each.rpartition(":")[0]) for each in self.ha.hosts.split(",")
        )
        if host in ("0.0.0.0", "::", "") or (is_loopback_host(host) and not local):  # nosec B104 # compared with
            raise BadConfiguration(
                f"--ha: other schedulers cannot reach this one at --host {host or '(every address)'}",
                remedy="say how they do: --ha-url http://NAME:PORT; and let --host be an address that they reach",
            )
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def context(self, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
        """What other schedulers' certificates are verified by. `certificate`: of this one, which it shows, too.

        Raises:
            BadConfiguration: A file cannot be used.
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
        raise BadConfiguration(f"--ha-url {url!r} is no address of a scheduler", remedy=remedy)
    if parts.scheme != scheme:
        raise BadConfiguration(f"--ha-url {url}: this scheduler speaks {scheme}", remedy=remedy)
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
            help="Be one of several schedulers, of which one leads: where in ZooKeeper they meet; or file://FILE that "
            "says so. Each has a --state of its own. Default: this one is alone.",
        ),
        click.option(
            "--ha-url",
            envvar="MESOS_GPU_HA_URL",
            metavar="URL",
            help="URL by which the other schedulers reach this one; default: its own address.",
        ),
        click.option(
            "--ha-cacert",
            type=parse.FILE,
            envvar="MESOS_GPU_HA_CACERT",
            help="PEM file of the authorities that their certificates may come from; default: those of this host.",
        ),
        click.option(
            "--ha-begin-anew",
            is_flag=True,
            help="Begin a log from this state, where ZooKeeper has lost the one that it followed; for one start.",
        ),
    ),
)
