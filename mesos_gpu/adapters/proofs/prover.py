"""Interface of a kind of authentication, and the data of a request that it gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mesos_gpu.access.proofs import Authorization
from mesos_gpu.model.access.caller import Caller, Proof


@dataclass(frozen=True, slots=True)
class Shown:
    """Data of a request for its authentication.

    Attributes:
        address: Address of the client, as far as trusted proxies report it; "" on a Unix socket. It becomes
            `Caller.address`.
        peer_address: Address of the connection's other end; "" on a Unix socket.
        headers: Values of each header in their order, by lower-case name.
        authorization: The Authorization header; None without one.
        extensions: Connection data of the server: its `scope["extensions"]`.
        now: Seconds since the epoch.
    """

    address: str
    peer_address: str
    headers: Mapping[str, Sequence[str]] = field(repr=False)
    authorization: Authorization | None
    extensions: Mapping[str, object]
    now: float


class Prover(Protocol):
    """A kind of authentication. It may handle several requests concurrently, on the event loop."""

    @property
    def kind(self) -> Proof:
        """The kind; a scheduler has at most one prover of each kind."""

    @property
    def challenge(self) -> str:
        """The challenge for `WWW-Authenticate`, such as `Bearer realm="mesos_gpu"`; "" for none."""

    async def identify(self, shown: Shown) -> Caller | None:
        """Return the caller of a request; None if the request has no proof of this kind.

        Must not block the event loop: slow work runs on another thread.

        Raises:
            WrongProof: The request has such a proof, and it is wrong.
        """

    def stands(self, caller: Caller) -> bool:
        """Return whether an earlier proof of a caller is still valid.

        Called repeatedly, on the event loop, while a request or session of the caller lasts. The calling code checks
        `Caller.until` itself.
        """
