"""Proofs of users' names that the command line enables."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.access import proofs
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.scheduler.options.options import Options

#: Options that kinds of proofs need; other kinds need none.
_NEEDS: Final[Mapping[Proof, str]] = {
    Proof.PASSWORD: "--htpasswd",
    Proof.CERTIFICATE: "--tls-client-ca",
    Proof.PROXY: "--trusted-proxy",
    Proof.OIDC: "--oidc-issuer",
}


def _is_set_up(options: Options) -> Mapping[Proof, bool]:
    """Return for each kind that needs options whether they are given."""
    given = options.authentication
    return {
        Proof.PASSWORD: given.htpasswd is not None,
        Proof.CERTIFICATE: options.tls.tls_client_ca is not None,
        Proof.PROXY: bool(given.trusted_proxies),
        Proof.OIDC: options.oidc.oidc_issuer is not None,
    }


def kinds(options: Options) -> tuple[Proof, ...]:
    """Return the accepted proofs in order of use; empty if authentication is off.

    Raises:
        BadConfiguration: --auth lists a proof whose option is missing, or lacks one whose option is given.
    """
    there, given = _is_set_up(options), options.authentication
    if given.auth is None:
        is_on = any(there.values()) or given.socket is not None
        return tuple(kind for kind in proofs.ORDER if is_on and there.get(kind, True))
    for kind in (Proof.PASSWORD, Proof.OIDC):  # certificates and proxies have uses besides being proofs
        if there[kind] and kind not in given.auth:
            raise BadConfiguration(
                f"{_NEEDS[kind]} has no effect: --auth does not list {kind.value}",
                remedy=f"add {kind.value} to --auth, or remove {_NEEDS[kind]}",
            )
    for kind in given.auth:
        if not there.get(kind, True):
            raise BadConfiguration(
                f"--auth lists {kind.value}, which needs {_NEEDS[kind]}",
                remedy=f"add {_NEEDS[kind]}, or remove {kind.value} from --auth",
            )
    return given.auth
