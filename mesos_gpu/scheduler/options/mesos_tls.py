"""TLS towards Mesos: the master, and the agents when logs are read."""

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
    """What the options of the same names say."""

    mesos_tls: bool = False
    mesos_cacert: Path | None = None
    mesos_cert: Path | None = None
    mesos_key: Path | None = None

    def is_on(self, master: str) -> bool:
        """Whether Mesos speaks TLS; `master`: what --master says, of which https:// will do."""
        return self.mesos_tls or master.startswith("https://")

    def context(self, master: str) -> ssl.SSLContext | None:
        """Verifies masters and agents; None: they speak plain HTTP. `master`: as of `is_on`.

        Raises:
            BadConfiguration: A file cannot be used, or is given without --mesos-tls.
        """
        if self.is_on(master):
            return client_context(Trust(self.mesos_cacert, self.mesos_cert, self.mesos_key))
        if self.mesos_cacert or self.mesos_cert or self.mesos_key:
            raise BadConfiguration(
                "--mesos-cacert, --mesos-cert and --mesos-key are nothing without --mesos-tls",
                remedy="give --mesos-tls, too, or leave them out",
            )
        return None


_OPTIONS: Decorators = (
    click.option(
        "--mesos-tls",
        is_flag=True,
        envvar="MESOS_GPU_MESOS_TLS",
        help="Speak https to master and agents, as Mesos does with LIBPROCESS_SSL_ENABLED, and have executors do so.",
    ),
    click.option(
        "--mesos-cacert",
        type=parse.FILE,
        envvar="MESOS_GPU_MESOS_CACERT",
        help="PEM file of the authorities that their certificates may come from; default: those of this host.",
    ),
    click.option(
        "--mesos-cert",
        type=parse.FILE,
        help="PEM file of the certificate to show them (LIBPROCESS_SSL_REQUIRE_CLIENT_CERT).",
    ),
    click.option("--mesos-key", type=parse.FILE, help="PEM file of its key, if it is not in the same one."),
)
MESOS_TLS = Section(MesosTlsOptions, _OPTIONS)
