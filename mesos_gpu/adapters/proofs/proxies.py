"""Proxies that prove names for us: they say in a header whom they have let in.

Whoever can send from a trusted address is believed whatever name he says. An address of this host is one of all its
processes, tasks with them: a proxy on this host connects to the Unix socket better, as a user that is its own.
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
    """Which proxies are trusted.

    Attributes:
        networks: By address.
        users: Uids that they run as, on this host, by the Unix socket.
    """

    networks: Networks = ()
    users: Collection[int] = ()

    def are_behind(self, peer_address: str, extensions: Mapping[str, object]) -> bool:
        """Whether a trusted proxy is at the other end of a connection."""
        local = local_peer_in(extensions)
        if local is not None:
            return not local.refused and local.uid in self.users
        return is_listed(peer_address, self.networks)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.networks or self.users)


class ProxyHeaders:
    """The `Prover` of what trusted proxies say."""

    kind = Proof.PROXY
    challenge = ""

    def __init__(
        self, proxies: Proxies, user_header: str = USER_HEADER, groups_header: str | None = None
    ) -> None:
        """`groups_header`: has groups, with commas between them; None: none does."""
        self._proxies = proxies
        self._user, self._groups = user_header, groups_header

    async def identify(self, shown: Shown) -> Caller | None:
        """Do as `Prover` says: such a header of anybody else is a wrong proof."""
        name = self._one(shown, self._user)
        groups = self._one(shown, self._groups) if self._groups else None
        if not name and groups:
            raise WrongProof(f"{self._groups} comes without {self._user}", guessed=False)
        if not name:
            return None
        if not self._proxies.are_behind(shown.peer_address, shown.extensions):
            raise WrongProof(
                f"{self._user} is believed from trusted proxies only", name, guessed=False,
                remedy="leave the header out; an operator lists proxies by --trusted-proxy",
            )  # fmt: skip
        if not may_be_name(name):
            raise WrongProof(f"{self._user} is no name", name, guessed=False)
        return Caller(name, _listed(groups or ""), Proof.PROXY, shown.address)

    def stands(self, caller: Caller) -> bool:
        """Do as `Prover` says: a proxy says so anew with each request."""
        return caller.proof is Proof.PROXY

    def _one(self, shown: Shown, header: str) -> str | None:
        values = shown.headers.get(header.lower(), ())
        if len(values) > 1:
            raise WrongProof(f"there are several headers {header}", guessed=False)
        return values[0].strip() if values else None


def _listed(groups: str) -> frozenset[str]:
    names = [name.strip() for name in groups.split(",")][:MAX_GROUPS]
    return frozenset(name for name in names if may_be_name(name))
