"""Which proofs of a name are taken, by what the command line says."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.access import proofs
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.scheduler.options.options import Options

#: The option that each kind needs; those that need none are not here.
_NEEDS: Final[Mapping[Proof, str]] = {
    Proof.PASSWORD: "--htpasswd",
    Proof.CERTIFICATE: "--tls-client-ca",
    Proof.PROXY: "--trusted-proxy",
    Proof.OIDC: "--oidc-issuer",
}


def _is_set_up(options: Options) -> Mapping[Proof, bool]:
    """Which kinds the options say enough of, of those that need any."""
    given = options.authentication
    return {
        Proof.PASSWORD: given.htpasswd is not None,
        Proof.CERTIFICATE: options.tls.tls_client_ca is not None,
        Proof.PROXY: bool(given.trusted_proxies),
        Proof.OIDC: options.oidc.oidc_issuer is not None,
    }


def kinds(options: Options) -> tuple[Proof, ...]:
    """Which proofs are taken, in their order; (): nobody is asked who he is.

    Raises:
        BadConfiguration: --auth names one that another option has to set up, or leaves out one that is set up.
    """
    there, given = _is_set_up(options), options.authentication
    if given.auth is None:
        asked = any(there.values()) or given.socket is not None
        return tuple(each for each in proofs.ORDER if asked and there.get(each, True))
    for kind in (Proof.PASSWORD, Proof.OIDC):  # certificates and proxies are of use without being proofs
        if there[kind] and kind not in given.auth:
            raise BadConfiguration(
                f"{_NEEDS[kind]} is for nothing: --auth leaves {kind.value} out",
                remedy=f"add {kind.value} to --auth, or leave {_NEEDS[kind]} out",
            )
    for kind in given.auth:
        if not there.get(kind, True):
            raise BadConfiguration(
                f"--auth has {kind.value}, which is nothing without {_NEEDS[kind]}",
                remedy=f"give {_NEEDS[kind]}, or leave {kind.value} out",
            )
    return given.auth
