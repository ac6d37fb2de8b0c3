"""TLS of a scheduler on this machine, for local tools that have its files."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mesos_gpu.adapters.tls.server import TlsFiles, load
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration

NAMES: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class TlsHere:
    """Certificate files of a server, and the name of this machine in its certificate."""

    certificate: Path
    key: Path
    name: str

    @classmethod
    def of(cls, certificate: Path, key: Path) -> Self:
        """Check the files.

        Raises:
            BadConfiguration: The files cannot be used, or the certificate is only for other machines.
        """
        names = load(TlsFiles(certificate, key)).facts.names
        own = next((name for name in NAMES if name in names), None)
        if own is None:
            raise BadConfiguration(
                f"{certificate}: certificate for {', '.join(names) or 'no name'}, not for this machine's loopback",
                remedy="use a certificate with localhost or 127.0.0.1 among its subject alternative names",
            )
        return cls(certificate.resolve(), key.resolve(), own)

    def url(self, port: int) -> str:
        """Return the URL of the scheduler."""
        return f"https://{self.name}:{port}"

    def arguments(self, port: int) -> list[str]:
        """Return the options for the scheduler's command line."""
        files = ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]
        return [*files, "--webui-url", self.url(port)]

    def context(self) -> ssl.SSLContext:
        """Return a client context that trusts this certificate, also if its authority is unknown here.

        Raises:
            BadConfiguration: The file has become unusable.
        """
        return client_context(Trust(self.certificate))
