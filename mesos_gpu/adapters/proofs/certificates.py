"""Authentication by client certificates, which the TLS handshake has verified."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from mesos_gpu.access.name_maps import NameMap, mapped
from mesos_gpu.access.proofs import WrongProof, may_be_name
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.adapters.tls.peer import Peer, peer_in
from mesos_gpu.model.access.caller import Caller, Proof


class CertName(Enum):
    """Field of a certificate that has the caller's name."""

    COMMON_NAME = "subject-cn"
    EMAIL = "san-email"
    DNS = "san-dns"
    URI = "san-uri"
    SUBJECT = "subject"


_NAMES: Final[Mapping[CertName, Callable[[Peer], Sequence[str]]]] = {
    CertName.COMMON_NAME: lambda peer: peer.common_names,
    CertName.EMAIL: lambda peer: peer.emails,
    CertName.DNS: lambda peer: peer.dns,
    CertName.URI: lambda peer: peer.uris,
    CertName.SUBJECT: lambda peer: (peer.subject,),
}


class Certificates:
    """`Prover` for client certificates.

    Args:
        name: Field of the certificate that has the name.
        maps: Rules that map the field to names here; without rules the field is the name.
    """

    kind = Proof.CERTIFICATE
    challenge = ""

    def __init__(self, name: CertName = CertName.COMMON_NAME, maps: Sequence[NameMap] = ()) -> None:
        self._name, self._maps = name, tuple(maps)

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by its certificate, as for `Prover`."""
        peer = peer_in({"extensions": dict(shown.extensions)})
        if peer is None:
            return None
        return Caller(
            name=self._name_of(peer),
            proof=Proof.CERTIFICATE,
            address=shown.address,
            until=peer.not_after or None,
            proof_id=peer.serial,
        )

    def stands(self, caller: Caller) -> bool:
        """Return whether the caller has a certificate; the TLS server itself ends connections of revoked ones."""
        return caller.proof is Proof.CERTIFICATE

    def _name_of(self, peer: Peer) -> str:
        names = _NAMES[self._name](peer)
        if len(names) != 1:
            count = "none" if not names else "several"
            raise WrongProof(
                f"the certificate has {count} of the field {self._name.value}", peer.subject, guessed=False
            )
        name = mapped(self._maps, names[0])
        if name is None or not may_be_name(name):
            raise WrongProof(
                f"the {self._name.value} of the certificate is not a valid name", names[0], guessed=False
            )
        return name
