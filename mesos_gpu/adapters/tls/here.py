"""TLS of a scheduler on this machine, for who started it here and has its files."""

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
    """Files of a server, and the name of this machine that its certificate is for."""

    certificate: Path
    key: Path
    name: str

    @classmethod
    def of(cls, certificate: Path, key: Path) -> Self:
        """Look the files through.

        Raises:
            BadConfiguration: They cannot be used, or are for other machines only.
        """
        names = load(TlsFiles(certificate, key)).facts.names
        own = next((name for name in NAMES if name in names), None)
        if own is None:
            raise BadConfiguration(
                f"{certificate}: it is for {', '.join(names) or 'no name'}, not for this machine's loopback",
                remedy="have one made whose subject alternative names have localhost or 127.0.0.1",
            )
        return cls(certificate.resolve(), key.resolve(), own)

    def url(self, port: int) -> str:
        """Where the scheduler is."""
        return f"https://{self.name}:{port}"

    def arguments(self, port: int) -> list[str]:
        """Options of the scheduler's command line."""
        files = ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]
        return [*files, "--webui-url", self.url(port)]

    def context(self) -> ssl.SSLContext:
        """Believes this certificate, also when its authority is unknown here.

        Raises:
            BadConfiguration: The file is no longer what it was.
        """
        return client_context(Trust(self.certificate))
