"""Options of TLS connections to Mesos: to the master, and to agents for logs."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import click

from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators, Section


@dataclass(frozen=True, slots=True)
class MesosTlsOptions:
    """Values of the options with the same names."""

    mesos_tls: bool = False
    mesos_cacert: Path | None = None
    mesos_cert: Path | None = None
    mesos_key: Path | None = None

    def is_on(self, master: str) -> bool:
        """Return whether Mesos uses TLS: by --mesos-tls, or by https:// in `master`, the value of --master."""
        return self.mesos_tls or master.startswith("https://")

    def context(self, master: str) -> ssl.SSLContext | None:
        """Return the TLS context for masters and agents; None for plain HTTP. `master` is the value of --master.

        Raises:
            BadConfiguration: A file cannot be read or used, or is given without --mesos-tls.
        """
        if self.is_on(master):
            return client_context(Trust(self.mesos_cacert, self.mesos_cert, self.mesos_key))
        if self.mesos_cacert or self.mesos_cert or self.mesos_key:
            raise BadConfiguration(
                "--mesos-cacert, --mesos-cert and --mesos-key have no effect without --mesos-tls",
                remedy="add --mesos-tls, or remove them",
            )
        return None


_OPTIONS: Decorators = (
    click.option(
        "--mesos-tls",
        is_flag=True,
        envvar="MESOS_GPU_MESOS_TLS",
        help="Use https for the master and agents (Mesos with LIBPROCESS_SSL_ENABLED), also in executors.",
    ),
    click.option(
        "--mesos-cacert",
        type=parse.FILE,
        envvar="MESOS_GPU_MESOS_CACERT",
        help="PEM file of the authorities trusted for Mesos' certificates; default: those of this host.",
    ),
    click.option(
        "--mesos-cert",
        type=parse.FILE,
        help="PEM file of the client certificate for Mesos (LIBPROCESS_SSL_REQUIRE_CLIENT_CERT).",
    ),
    click.option(
        "--mesos-key", type=parse.FILE, help="PEM file of the key of --mesos-cert, if it is in another file."
    ),
)
MESOS_TLS = Section(MesosTlsOptions, _OPTIONS)
