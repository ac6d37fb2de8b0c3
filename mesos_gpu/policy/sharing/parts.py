"""Free part of a GPU that is open to shares. Pure."""

from dataclasses import dataclass, replace

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class GpuPart:
    """Free part of a GPU that is open to shares; one Mesos task holds the GPU for all its shares.

    Attributes:
        gpu_id: UUID of the GPU.
        milli: Free thousandths of its compute; negative if more is reserved than is free now.
        memory_mib: Free memory for shares, in MiB; negative if more is reserved than is free now.
        method: Method that enforces all shares on the GPU; None without shares.
        domain: User to whose shares the GPU is restricted, as in `Share.domain`; "" without restriction.
        taken: Instances of MIG shares; one entry for each share that holds or reserves one.
        shares: Number of shares that are on the GPU or reserved.
    """

    gpu_id: GpuId
    milli: int
    memory_mib: int
    method: Method | None = None
    domain: str = ""
    taken: tuple[str, ...] = ()
    shares: int = 0

    def less(self, *shares: Share) -> "GpuPart":
        """Return the part that stays free beside more shares, which all use one method."""
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
        """Return the part that is free after a share has ended; `empty` is the GPU without any share."""
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
        """Return the part that is free in both; nothing, if the shares of one exclude those of the other."""
        if self.method and other.method and (self.method, self.domain) != (other.method, other.domain):
            return replace(self, milli=0, memory_mib=0)
        absent = tuple(instance for instance in other.taken if instance not in self.taken)
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
    """Return a GPU's free part with no share on it; without memory if the host cannot share the GPU.

    Args:
        gpu: GPU without shares.
        compute_milli: Thousandths of its compute that all its shares together may have.
    """
    return GpuPart(gpu.id, compute_milli, gpu.sharing.memory_mib if gpu.sharing else 0)
