"""Authentication of the REST interface, built from the command line."""

import ipaddress
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.proofs.certificates import Certificates, CertName
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.local import LocalCallers
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.adapters.proofs.prover import Prover
from mesos_gpu.adapters.proofs.proxies import ProxyHeaders
from mesos_gpu.adapters.proofs.tokens import Tokens
from mesos_gpu.api.http.bounds import ConnectionLimits, connections
from mesos_gpu.api.http.sockets import NAME, LocalSocket
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.model.nodes.user_pool import parse_pool
from mesos_gpu.scheduler.options.options import Options
from mesos_gpu.scheduler.proofs.kinds import kinds

logger = logging.getLogger("mesos_gpu.login")


def who_asks(options: Options, scheduler: SchedulerApi) -> Who | None:
    """Build the authenticator of requests; None if authentication is off.

    Raises:
        BadConfiguration: A proof cannot be set up with the given options.
    """
    order = kinds(options)
    if not order:
        return None
    given, guesses = options.authentication, Guesses()
    proxies = given.trusted_proxies
    make: Mapping[Proof, Callable[[], Prover]] = {
        Proof.TOKEN: lambda: Tokens(lambda id: scheduler.tokens.get(id), scheduler.note_token_use),
        Proof.PASSWORD: lambda: Passwords(Htpasswd(_file(given.htpasswd)), guesses),
        Proof.CERTIFICATE: lambda: Certificates(CertName(given.cert_name), given.cert_maps),
        Proof.PROXY: lambda: ProxyHeaders(proxies, given.proxy_user_header, given.proxy_groups_header),
        Proof.OIDC: options.oidc.prover,
        Proof.SOCKET: lambda: LocalCallers(proxies, parse_pool(options.user_pool)),
    }
    if any(network.overlaps(_LOOPBACK[network.version]) for network in proxies.networks):
        logger.warning(
            "--trusted-proxy contains an address of this host: each process here, including tasks, can claim any "
            "name; a "
            "proxy on this host should connect to the Unix socket (--trusted-proxy user:NAME)"
        )
    if Proof.OIDC in order and len(order) > 1 and not options.oidc.oidc_name_prefix:
        logger.warning(
            "a user of the issuer and a user of another proof (%s) with one name are treated as one user: if users "
            "of the "
            "issuer may choose their names, give --oidc-name-prefix and --oidc-groups-prefix",
            ", ".join(kind.value for kind in order if kind is not Proof.OIDC),
        )
    provers = [make[kind]() for kind in order]
    return Who(provers, order, guesses=guesses, proxies=proxies, open_routes=given.open_routes)


def crowd_of(options: Options) -> ConnectionLimits:
    """Return the limits of connections to the REST interface."""
    proxies = options.authentication.trusted_proxies
    return ConnectionLimits(connections(), options.limits.connections, proxies)


def local_socket(options: Options) -> LocalSocket | None:
    """Return the Unix socket to serve; None if no accepted proof needs it.

    Raises:
        BadConfiguration, Conflict: The socket cannot be created, see `LocalSocket`.
    """
    given, order = options.authentication, kinds(options)
    by_proxy = bool(given.trusted_proxies.users) and Proof.PROXY in order
    if given.socket is None and not (Proof.SOCKET in order or by_proxy):
        return None
    return LocalSocket(given.socket or options.state.absolute().parent / "run" / NAME)


_LOOPBACK: Final = {4: ipaddress.ip_network("127.0.0.0/8"), 6: ipaddress.ip_network("::1/128")}


def _file(path: Path | None) -> Path:
    assert path is not None, "`kinds` has checked"
    return path
