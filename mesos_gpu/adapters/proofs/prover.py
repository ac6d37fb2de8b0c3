"""What a kind of proof offers, and what it gets to see of a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mesos_gpu.access.proofs import Authorization
from mesos_gpu.model.access.caller import Caller, Proof


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request shows of who sends it.

    Attributes:
        address: Where it came from, as far as trusted proxies say so; "" on a Unix socket. Also a right proof's
            `Caller.address`.
        peer_address: The other end of the connection; "" on a Unix socket.
        headers: All values of each header in their order, by its name in lower case.
        authorization: The one header of that name.
        extensions: What the server knows of the connection: its `scope["extensions"]`.
        now: Seconds since the epoch.
    """

    address: str
    peer_address: str
    headers: Mapping[str, Sequence[str]] = field(repr=False)
    authorization: Authorization | None
    extensions: Mapping[str, object]
    now: float


class Prover(Protocol):
    """A kind of proof. One of it may be asked about several requests at once, on the event loop."""

    @property
    def kind(self) -> Proof:
        """Which one; of a scheduler there is at most one prover of a kind."""

    @property
    def challenge(self) -> str:
        """What `WWW-Authenticate` says of it, as `Bearer realm="mesos_gpu"`; "": nothing."""

    async def identify(self, shown: Shown) -> Caller | None:
        """Say who sends a request; None: it shows no proof of this kind.

        Neither waits longer than a moment, nor keeps the event loop: what takes time runs on another thread.

        Raises:
            WrongProof: It shows one, and it is wrong.
        """

    def stands(self, caller: Caller) -> bool:
        """Whether what it has identified a caller by still proves the name: asked again and again, on the event loop,
        while a request or a session of that caller goes on. `Caller.until` is looked at by who asks."""
