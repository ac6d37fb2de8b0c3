"""TLS of the REST interface."""

from dataclasses import dataclass
from pathlib import Path

import click

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What the options of the same names say."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_client: str | None = None
    tls_crl: Path | None = None
    insecure_plain_http: bool = False

    @property
    def clients(self) -> Clients:
        """Whether clients are to show certificates."""
        if self.tls_client_ca is None:
            return Clients.NONE
        return Clients(self.tls_client or Clients.REQUIRED)

    def files(self) -> TlsFiles | None:
        """What TLS is made of; None: plain HTTP is spoken.

        Raises:
            BadConfiguration: An option lacks another one that it is nothing without.
        """
        needs = (
            ("--tls-key", self.tls_key, "--tls-cert", self.tls_cert),
            ("--tls-cert", self.tls_cert, "--tls-key", self.tls_key),
            ("--tls-client-ca", self.tls_client_ca, "--tls-cert", self.tls_cert),
            ("--tls-client", self.tls_client, "--tls-client-ca", self.tls_client_ca),
            ("--tls-crl", self.tls_crl, "--tls-client-ca", self.tls_client_ca),
        )
        for name, given, other, needed in needs:
            if given is not None and needed is None:
                raise BadConfiguration(
                    f"{name} is nothing without {other}", remedy=f"give {other}, or leave it out"
                )
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca, self.clients, self.tls_crl)


TLS = Section(
    TlsOptions,
    (
        click.option(
            "--tls-cert",
            type=parse.FILE,
            envvar="MESOS_GPU_TLS_CERT",
            help="PEM file of the REST interface's certificate, and of those between it and the root: https is spoken, "
            "and nothing else. A new file is taken without a restart, also at SIGHUP.",
        ),
        click.option(
            "--tls-key",
            type=parse.FILE,
            envvar="MESOS_GPU_TLS_KEY",
            help="PEM file of its key, without a password, that others cannot read.",
        ),
        click.option(
            "--tls-client-ca",
            type=parse.FILE,
            help="PEM file of the authorities that clients' certificates must come from.",
        ),
        click.option(
            "--tls-client",
            type=click.Choice([Clients.OPTIONAL.value, Clients.REQUIRED.value]),
            show_default="required",
            help="With --tls-client-ca: whether each client must show a certificate.",
        ),
        click.option(
            "--tls-crl",
            type=parse.FILE,
            help="PEM file of certificates that are revoked, a list of each authority; when it is out of date, all are "
            "refused.",
        ),
        click.option(
            "--insecure-plain-http",
            is_flag=True,
            help="Let --host be other than loopback without TLS, with authentication: passwords and tokens can be read "
            "on the way.",
        ),
    ),
)
