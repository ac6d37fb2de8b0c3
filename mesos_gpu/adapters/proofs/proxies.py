"""Authentication by trusted proxies, which name the user in a header.

Any client at a trusted address is believed, whatever name it gives. An address of this host belongs to all its
processes, including tasks: a proxy on this host should connect to the Unix socket, as a user of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.access.proofs import Networks, WrongProof, is_listed, may_be_name
from mesos_gpu.adapters.proofs.peers import local_peer_in
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof

USER_HEADER: Final = "X-Forwarded-User"
MAX_GROUPS: Final = 200


@dataclass(frozen=True, slots=True)
class Proxies:
    """Trusted proxies.

    Attributes:
        networks: Addresses and networks of proxies.
        users: Uids of proxies on this host that connect to the Unix socket.
    """

    networks: Networks = ()
    users: Collection[int] = ()

    def are_behind(self, peer_address: str, extensions: Mapping[str, object]) -> bool:
        """Return whether the other end of a connection is a trusted proxy."""
        local = local_peer_in(extensions)
        if local is not None:
            return not local.refused and local.uid in self.users
        return is_listed(peer_address, self.networks)

    def __bool__(self) -> bool:
        """Return whether any proxies are trusted."""
        return bool(self.networks or self.users)


class ProxyHeaders:
    """`Prover` for headers of trusted proxies.

    Args:
        proxies: Proxies that are trusted.
        user_header: Header with the user's name.
        groups_header: Header with groups, separated by commas; None if there is no such header.
    """

    kind = Proof.PROXY
    challenge = ""

    def __init__(
        self, proxies: Proxies, user_header: str = USER_HEADER, groups_header: str | None = None
    ) -> None:
        self._proxies = proxies
        self._user, self._groups = user_header, groups_header

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by the headers; such a header from others is a wrong proof."""
        name = self._one(shown, self._user)
        groups = self._one(shown, self._groups) if self._groups else None
        if not name and groups:
            raise WrongProof(f"{self._groups} comes without {self._user}", guessed=False)
        if not name:
            return None
        if not self._proxies.are_behind(shown.peer_address, shown.extensions):
            raise WrongProof(
                f"{self._user} is accepted from trusted proxies only", name, guessed=False,
                remedy="omit the header; an operator lists proxies with --trusted-proxy",
            )  # fmt: skip
        if not may_be_name(name):
            raise WrongProof(f"{self._user} is not a valid name", name, guessed=False)
        return Caller(name, _listed(groups or ""), Proof.PROXY, shown.address)

    def stands(self, caller: Caller) -> bool:
        """Return whether the caller was named by a proxy, which repeats the name in each request."""
        return caller.proof is Proof.PROXY

    def _one(self, shown: Shown, header: str) -> str | None:
        values = shown.headers.get(header.lower(), ())
        if len(values) > 1:
            raise WrongProof(f"there are several headers {header}", guessed=False)
        return values[0].strip() if values else None


def _listed(groups: str) -> frozenset[str]:
    names = [name.strip() for name in groups.split(",")][:MAX_GROUPS]
    return frozenset(name for name in names if may_be_name(name))
