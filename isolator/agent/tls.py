"""TLS to the agent, by the settings of its operator in the environment of executors.

Modules for TLS are imported only where it is used: they cost an executor 10 ms of its start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.adapters.tls.variables import CACERT, CERT, KEY, NAME, TLS

if TYPE_CHECKING:
    import socket

_OFF: Final = ("", "0", "false", "off", "no")


@dataclass(frozen=True, slots=True)
class AgentTls:
    """Settings of TLS to the agent; "" for the defaults of the variables above.

    Attributes:
        cacert: File of trusted certificate authorities.
        cert: File of the client's certificate.
        key: File of the client's private key.
        name: Name that the agent's certificate must have.
    """

    cacert: str = ""
    cert: str = ""
    key: str = ""
    name: str = ""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "AgentTls | None":
        """Read the variables; None if the agent speaks plain HTTP."""
        setting = env.get(TLS) or env.get("LIBPROCESS_SSL_ENABLED", "")
        if setting.strip().lower() in _OFF:
            return None
        cacert = env.get(CACERT) or env.get("LIBPROCESS_SSL_CA_FILE", "")
        return cls(cacert, env.get(CERT, ""), env.get(KEY, ""), env.get(NAME, ""))

    def connect(self, host: str, port: int, timeout_s: float) -> "socket.socket":
        """Connect, and make the TLS handshake.

        Raises:
            OSError: The agent does not answer, or its certificate is not valid for it.
        """
        import socket
        import ssl

        from mesos_gpu.adapters.tls.trust import OTHER_NAME

        context, doubt = self._context(), None
        for name in [self.name] if self.name else [host, socket.gethostname()]:
            plain = socket.create_connection((host, port), timeout_s)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made: socket.socket = context.wrap_socket(plain, server_hostname=name)
                return made
            except ssl.SSLCertVerificationError as error:
                doubt = error
                plain.close()
                if error.verify_code not in OTHER_NAME:
                    break
            except OSError:
                plain.close()
                raise
        assert doubt is not None
        raise OSError(f"the certificate of {host}:{port} is not trusted: {doubt.verify_message}")

    def _context(self) -> Any:
        from pathlib import Path

        from mesos_gpu.adapters.tls.trust import Trust, client_context
        from mesos_gpu.errors import BadConfiguration

        if self not in _contexts:
            paths = [Path(text) if text else None for text in (self.cacert, self.cert, self.key)]
            try:
                _contexts[self] = client_context(Trust(*paths))
            except BadConfiguration as error:
                raise OSError(f"{error.what}; to fix: {error.remedy}") from error
        return _contexts[self]


_contexts: Final[dict[AgentTls, Any]] = {}
