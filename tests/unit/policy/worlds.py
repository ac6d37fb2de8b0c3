"""Random clusters of a few nodes, the same for a seed, with all that a capacity can have."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.sharing.methods import choose
from mesos_gpu.policy.sharing.parts import GpuPart, unshared

NOW = 100.0
ENDS = (50.0, 110.0, 120.0, 120.0, 130.0, ENDLESS)
_MODELS = (("T4", 16_000, "7.5"), ("A100", 40_000, "8.0"), ("A100", 80_000, "8.0"))
_SHIM = (Ability.SHIM, "")
_MPS = (Ability.MPS2, "")
_ABILITIES = ((_SHIM,), (_SHIM, _MPS), (_SHIM, _MPS), ())


@dataclass
class World:
    """A source of nodes and requests.

    Attributes:
        seed: Seed of all that is random.
        jobs: Number of jobs at the most; some hold several allocations.
        ports: Whether ports are counted.
        shares: Whether GPUs are shared.
        full: Whether little is free.
    """

    seed: int
    jobs: int = 6
    ports: bool = False
    shares: bool = True
    full: bool = False
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)

    def nodes(self, most: int = 4) -> list[NodeCapacity]:
        """Between one and `most` nodes."""
        return [self.node(number) for number in range(self.chance.randint(1, most))]

    def node(self, number: int) -> NodeCapacity:
        """A node with what jobs hold there."""
        chance = self.chance
        kinds = chance.choice((_MODELS, chance.sample(_MODELS, 1)))
        count = chance.choice((0, 2, 3, 4, 4)) if self.full else chance.randint(0, 4)
        cards = tuple(self._card(number, slot, *chance.choice(kinds)) for slot in range(count))
        free: list[Gpu] = []
        parts: list[GpuPart] = []
        held: list[Allocation] = []
        for card in cards:
            if chance.random() < (0.6 if self.full else 0.3):
                held.append(self._allocation(Resources(cpus=chance.randint(0, 2), gpus=1), (card,)))
                continue
            free.append(card)
            if self.shares and chance.random() < (0.8 if self.full else 0.5):
                part, some = self._shared(card)
                parts.append(part)
                held += some
        held += [self._allocation(Resources(cpus=1, mem_mib=100), ()) for _ in range(chance.randint(0, 1))]
        amounts = Resources(
            cpus=chance.randint(-1, 3) if self.full else chance.randint(0, 6),
            mem_mib=4000 if self.full else chance.choice((100, 1000, 4000)),
            gpus=len(free) - len(parts),
        )
        start = 31_000 + 10 * number
        node = NodeCapacity(
            AgentId(f"a{9 - number}"),
            chance.choice(("x", f"n{number}")),
            amounts,
            tuple(free),
            tuple(parts),
            ports=(PortRange(start, start + chance.randint(0, 2)),) if self.ports else None,
            installed=cards,
            driver=chance.choice((None, "535", "550")),
        )
        return node.holding(held)

    def _card(self, number: int, slot: int, model: str, memory_mib: int, capability: str) -> Gpu:
        abilities = self.chance.choice(_ABILITIES)
        sharing = Sharing(memory_mib, abilities) if self.shares and self.chance.random() < 0.8 else None
        return Gpu(GpuId(f"g{number}-{slot}"), model, memory_mib, slot, "", sharing=sharing,
                   compute_capability=capability)  # fmt: skip

    def _shared(self, card: Gpu) -> tuple[GpuPart, list[Allocation]]:
        part, held = unshared(card), []
        for _ in range(self.chance.randint(0, 3)):
            asked = ShareRequest(self.chance.choice((100, 250, 500)), self.chance.choice((100, 250, 500)),
                                 isolation=Isolation.ANY)  # fmt: skip
            share = choose(asked, card, part, self.chance.choice((None, "ann", "bob")))
            if isinstance(share, Share):
                part = part.less(share)
                held.append(self._allocation(Resources(cpus=1), (card,), share))
        return part, held

    def _allocation(
        self, resources: Resources, gpus: tuple[Gpu, ...], share: Share | None = None
    ) -> Allocation:
        chance = self.chance
        job_id = JobId(f"j{chance.randint(0, self.jobs - 1)}") if chance.random() < 0.95 else None
        begin = chance.randint(32_000, 60_000)
        ports = tuple(PortRange(begin + i, begin + i) for i in range(chance.randint(0, 2)))
        return Allocation(job_id, resources, gpus, chance.choice((0.0, 10.0)), chance.choice(ENDS), share=share,
                          ports=ports if self.ports else ())  # fmt: skip

    def request(self) -> Request:
        """Make a request of a task: whole GPUs, shares, or none."""
        chance = self.chance
        gpu = GpuRequest(
            chance.choice((0, 1, 1, 2, 3)),
            chance.choice(((), (), ("A100",), ("T4", "A100"), ("A100", "T4"))),
            chance.choice((None, None, 40_000, 80_000)),
            chance.choice((None, None, "8.0")),
        )
        if self.shares and gpu.count and chance.random() < 0.5:
            milli = chance.choice((100, 250, 400, 600))
            asked = ShareRequest(milli, milli, isolation=chance.choice(tuple(Isolation)))
            gpu = replace(gpu, count=min(gpu.count, 2), share=asked)
        gpus = 0 if gpu.share else gpu.count
        amounts = Resources(cpus=chance.randint(1, 4), mem_mib=chance.choice((50, 100, 1000)), gpus=gpus)
        return Request(
            amounts, gpu, chance.choice((None, None, "535", "550")), user=chance.choice((None, "ann"))
        )


def worlds(count: int, **fields: bool) -> Iterator[World]:
    """So many worlds, each with another seed."""
    return (World(seed, **fields) for seed in range(count))
