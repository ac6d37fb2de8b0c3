"""Network exposure of the REST interface, and its warnings."""

from dataclasses import dataclass

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.addresses import is_loopback_address
from mesos_gpu.scheduler.options.options import Options
from mesos_gpu.scheduler.proofs.kinds import kinds


def is_authenticated(options: Options) -> bool:
    """Return whether requests need authentication."""
    return bool(kinds(options))


@dataclass(frozen=True, slots=True)
class Exposure:
    """Reachability of the REST interface.

    Attributes:
        address: Address that the interface listens on.
        authenticated: Whether requests need authentication.
        tls: Whether the interface serves TLS.
    """

    address: str
    authenticated: bool
    tls: bool

    @property
    def beyond_host(self) -> bool:
        """Whether other machines may reach the interface."""
        return not is_loopback_address(self.address)

    @property
    def open_to_all(self) -> bool:
        """Whether everyone who reaches the interface over a network has full control."""
        return self.beyond_host and not self.authenticated

    @property
    def warnings(self) -> list[str]:
        """Warnings for the operator at each start."""
        if not self.beyond_host:
            return []
        warnings = ["everyone who reaches that address has full control: there is no authentication"]
        warnings = [] if self.authenticated else warnings
        plain = "traffic to that address, passwords and tokens included, can be read and changed on the network: no TLS"
        return warnings if self.tls else [*warnings, plain]


def exposed(options: Options, address: str) -> Exposure:
    """Return the exposure of a listening address.

    Raises:
        BadConfiguration: The interface would be exposed without the option that permits it.
    """
    exposure = Exposure(address, is_authenticated(options), options.tls.files() is not None)
    if exposure.open_to_all and not options.insecure_no_authentication:
        raise BadConfiguration(
            f"--host {options.host}: everyone who reaches {address} could run commands as any user that jobs may have, "
            "because there is no authentication",
            remedy="remove --host; or set up authentication (--auth token,socket, --htpasswd, --tls-client-ca, "
            "--trusted-proxy); or, if a firewall or the network keeps others out, confirm it with "
            "--insecure-no-authentication",
        )
    is_confirmed = options.tls.insecure_plain_http or options.insecure_no_authentication
    if exposure.beyond_host and not exposure.tls and not is_confirmed:
        raise BadConfiguration(
            f"--host {options.host}: passwords and tokens that are sent to {address} could be read on the network, "
            "because there is no TLS",
            remedy="give --tls-cert and --tls-key; or remove --host and put a proxy with TLS before 127.0.0.1; "
            "or accept the risk with --insecure-plain-http",
        )
    return exposure
