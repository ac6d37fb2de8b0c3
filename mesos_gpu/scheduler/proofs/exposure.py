"""Who can reach the REST interface, and what keeps him from doing everything."""

from dataclasses import dataclass

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.addresses import is_loopback_address
from mesos_gpu.scheduler.options.options import Options
from mesos_gpu.scheduler.proofs.kinds import kinds


def is_authenticated(options: Options) -> bool:
    """Whether whoever sends a request must prove who he is."""
    return bool(kinds(options))


@dataclass(frozen=True, slots=True)
class Exposure:
    """Attributes:
    address: That the interface listens on.
    authenticated: As of `is_authenticated`.
    tls: Whether it speaks TLS.
    """

    address: str
    authenticated: bool
    tls: bool

    @property
    def beyond_host(self) -> bool:
        """Whether other machines may reach it."""
        return not is_loopback_address(self.address)

    @property
    def open_to_all(self) -> bool:
        """Whether whoever reaches it over a network may do everything."""
        return self.beyond_host and not self.authenticated

    @property
    def warnings(self) -> list[str]:
        """What an operator is told at each start."""
        if not self.beyond_host:
            return []
        said = ["whoever reaches that address can do everything: there is no authentication"]
        said = [] if self.authenticated else said
        plain = "what is sent to that address can be read and changed on the way, passwords and tokens too: no TLS"
        return said if self.tls else [*said, plain]


def exposed(options: Options, address: str) -> Exposure:
    """What listening on an address means.

    Raises:
        BadConfiguration: Nobody has said that it may be so.
    """
    exposure = Exposure(address, is_authenticated(options), options.tls.files() is not None)
    if exposure.open_to_all and not options.insecure_no_authentication:
        raise BadConfiguration(
            f"--host {options.host}: whoever reaches {address} could run commands as any user that jobs may have, "
            "for there is no authentication",
            remedy="leave --host out; or say how names are proved (--auth token,socket, --htpasswd, --tls-client-ca, "
            "--trusted-proxy); or, where a firewall or the network keeps others off, say so with "
            "--insecure-no-authentication",
        )
    said = options.tls.insecure_plain_http or options.insecure_no_authentication
    if exposure.beyond_host and not exposure.tls and not said:
        raise BadConfiguration(
            f"--host {options.host}: passwords and tokens that are sent to {address} could be read on the way, "
            "for there is no TLS",
            remedy="give --tls-cert and --tls-key; or leave --host out and put a proxy with TLS before 127.0.0.1; "
            "or say that it is well with --insecure-plain-http",
        )
    return exposure
