"""Certificates of clients, which the TLS handshake has verified: which name of theirs is the caller's."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from mesos_gpu.access.name_maps import NameMap, mapped
from mesos_gpu.access.proofs import WrongProof, may_be_name
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.adapters.tls.peer import Peer, peer_in
from mesos_gpu.model.access.caller import Caller, Proof


class CertName(Enum):
    """Where in a certificate the name is."""

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
    """The `Prover` of certificates."""

    kind = Proof.CERTIFICATE
    challenge = ""

    def __init__(self, name: CertName = CertName.COMMON_NAME, maps: Sequence[NameMap] = ()) -> None:
        """`maps`: from what is in a certificate to names here; none: it is the name."""
        self._name, self._maps = name, tuple(maps)

    async def identify(self, shown: Shown) -> Caller | None:
        """Do as `Prover` says."""
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
        """Do as `Prover` says: connections of those that are revoked are ended, by who serves TLS."""
        return caller.proof is Proof.CERTIFICATE

    def _name_of(self, peer: Peer) -> str:
        names = _NAMES[self._name](peer)
        if len(names) != 1:
            count = "none" if not names else "several"
            raise WrongProof(
                f"the certificate has {count} of {self._name.value}", peer.subject, guessed=False
            )
        name = mapped(self._maps, names[0])
        if name is None or not may_be_name(name):
            raise WrongProof(
                f"the {self._name.value} of the certificate is no name here", names[0], guessed=False
            )
        return name
