"""How much is free of a GPU that is open to shares, and what one share takes of it. Pure."""

from dataclasses import dataclass, replace

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class GpuPart:
    """How much is free of a GPU that is open to shares: a task holds it in Mesos for all of them.

    Attributes:
        gpu_id: Its UUID.
        milli: Thousandths of its compute; below 0: more is kept than is free now.
        memory_mib: Of what it has for shares; below 0 likewise.
        method: How the shares on it are enforced, all of them alike; None: there are none now.
        domain: The user whose shares alone may be on it; EVERYBODY: of those who may share a server; "": anybody's.
        taken: UUIDs of its MIG instances that tasks hold; once for each that holds it or has it kept.
        shares: How many are on it, or are kept.
    """

    gpu_id: GpuId
    milli: int
    memory_mib: int
    method: Method | None = None
    domain: str = ""
    taken: tuple[str, ...] = ()
    shares: int = 0

    def less(self, *shares: Share) -> "GpuPart":
        """What is left beside more shares, all of which are enforced alike."""
        if not shares:
            return self
        instances = [share.instance for share in shares if share.instance]
        return replace(
            self,
            milli=self.milli - sum([share.compute_milli for share in shares]),
            memory_mib=self.memory_mib - sum([share.memory_mib for share in shares]),
            method=shares[-1].method,
            domain=shares[-1].domain or self.domain,
            taken=(*self.taken, *instances),
            shares=self.shares + len(shares),
        )

    def more(self, share: Share, empty: "GpuPart") -> "GpuPart":
        """What is free after a share has ended. `empty`: the same card without any."""
        taken = list(self.taken)
        if share.instance in taken:
            taken.remove(share.instance)
        back = replace(
            self,
            milli=self.milli + share.compute_milli,
            memory_mib=self.memory_mib + share.memory_mib,
            taken=tuple(taken),
            shares=self.shares - 1,
        )
        free = (back.milli, back.memory_mib, back.taken)
        return empty if free == (empty.milli, empty.memory_mib, empty.taken) else back

    def least(self, other: "GpuPart") -> "GpuPart":
        """What is free in both; nothing, if the shares of one exclude those of the other."""
        if self.method and other.method and (self.method, self.domain) != (other.method, other.domain):
            return replace(self, milli=0, memory_mib=0)
        absent = tuple(each for each in other.taken if each not in self.taken)
        return replace(
            self,
            milli=min(self.milli, other.milli),
            memory_mib=min(self.memory_mib, other.memory_mib),
            method=self.method or other.method,
            domain=self.domain or other.domain,
            taken=(*self.taken, *absent),
            shares=max(self.shares, other.shares),
        )


def unshared(gpu: Gpu, compute_milli: int = WHOLE) -> GpuPart:
    """A GPU with no share on it; of one that its host cannot share there is no memory.

    Args:
        gpu: The card.
        compute_milli: Thousandths of its compute that all its shares together may have.
    """
    return GpuPart(gpu.id, compute_milli, gpu.sharing.memory_mib if gpu.sharing else 0)
