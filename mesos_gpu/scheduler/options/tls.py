"""Options of TLS at the REST interface."""

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
    """Values of the options with the same names."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_client: str | None = None
    tls_crl: Path | None = None
    insecure_plain_http: bool = False

    @property
    def clients(self) -> Clients:
        """Whether clients must or may show certificates."""
        if self.tls_client_ca is None:
            return Clients.NONE
        return Clients(self.tls_client or Clients.REQUIRED)

    def files(self) -> TlsFiles | None:
        """Return the files for TLS; None for plain HTTP.

        Raises:
            BadConfiguration: An option is given without another one that it needs.
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
                    f"{name} has no effect without {other}", remedy=f"add {other}, or remove {name}"
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
            help="PEM file of the REST interface's certificate and its intermediates; enables https and disables "
            "http. A new "
            "file is used without a restart, at once after SIGHUP.",
        ),
        click.option(
            "--tls-key",
            type=parse.FILE,
            envvar="MESOS_GPU_TLS_KEY",
            help="PEM file of the key of --tls-cert, without a password, that other users cannot read.",
        ),
        click.option(
            "--tls-client-ca",
            type=parse.FILE,
            help="PEM file of the authorities trusted for clients' certificates.",
        ),
        click.option(
            "--tls-client",
            type=click.Choice([Clients.OPTIONAL.value, Clients.REQUIRED.value]),
            show_default="required",
            help="With --tls-client-ca: whether client certificates are required or optional.",
        ),
        click.option(
            "--tls-crl",
            type=parse.FILE,
            help="PEM file of revocation lists, one of each authority; when one is out of date, all client "
            "certificates are "
            "refused.",
        ),
        click.option(
            "--insecure-plain-http",
            is_flag=True,
            help="Allow a --host other than loopback without TLS, with authentication: passwords and tokens can then "
            "be read "
            "on the network.",
        ),
    ),
)
