"""Experiment of the FGD paper: how many GPUs of a cluster can be allocated before requests no longer fit.

Requests arrive in a random order, then requests drawn from them again, until they add up to more than the cluster has.
Each is placed when it arrives, or never; none ends. The result is the part of the GPUs that is allocated when requests
for as many GPUs as the cluster has (100 %) have arrived. Source: Weng et al., USENIX ATC'23, section 6.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import Fragmentation, Mix, mix_of
from mesos_gpu.policy.cluster.registry import POLICIES
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import View

ORDERS: Final = ("permuted", "file")
MARKS: Final = (
    50,
    80,
    90,
    95,
    100,
    110,
    120,
    130,
)  # when figures are taken: requested GPUs, in % of the cluster's GPUs


@dataclass(slots=True)
class Result:
    """Result of an experiment. The keys of the figures are requested GPUs, in % of the cluster's GPUs.

    Attributes:
        alloc_pct: Allocated GPUs, in % of all GPUs.
        frag_pct_total, frag_pct_idle: Fragmented GPUs, in % of all GPUs and of the idle ones.
        seconds: Time spent on decisions and bookkeeping.
    """

    policy: str
    seed: int
    alloc_pct: dict[str, float] = field(default_factory=dict)
    frag_pct_total: dict[str, float] = field(default_factory=dict)
    frag_pct_idle: dict[str, float] = field(default_factory=dict)
    attempts: int = 0
    placements: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, object]:
        """Return the result as the command prints it."""
        return {
            "policy": self.policy,
            "alloc_pct": self.alloc_pct,
            "frag_pct_total": self.frag_pct_total,
            "frag_pct_idle": self.frag_pct_idle,
            "attempts_per_s": round(self.attempts / self.seconds) if self.seconds else None,
            "placements_per_s": round(self.placements / self.seconds) if self.seconds else None,
            "seed": self.seed,
        }


def run(
    nodes: Sequence[Row],
    pods: Sequence[Shape],
    policy: str,
    seed: int,
    *,
    order: str = "permuted",
    target: int = 130,
    marks: Sequence[int] = MARKS,
    told: Callable[[float], None] = lambda _: None,
) -> Result:
    """Run an experiment.

    Args:
        nodes, pods: Nodes of the empty cluster, and requests, some of which need GPUs.
        policy: Name in `policy.cluster.registry`.
        seed: Seed of all random choices.
        order: "permuted" to shuffle nodes, and requests before some are drawn again; "file" for their given order.
        target: Requested GPUs at which the experiment ends, in % of the cluster's GPUs.
        marks: Requested GPUs at which figures are taken, in % of the cluster's GPUs.
        told: Callback at each mark with the requested GPUs, in % of the cluster's GPUs.

    Raises:
        BadConfiguration: The nodes have no GPUs, or no request is for GPUs.
    """
    chance = random.Random(seed)
    stream, nodes = list(pods), list(nodes)
    if order == "permuted":
        chance.shuffle(nodes)
        chance.shuffle(stream)
    capacity = sum(sum(node.gpu_free_milli) for node in nodes)
    _draw(stream, pods, chance, capacity, target)
    mix = mix_of(pods)
    view = View(nodes, POLICIES[policy].make(lambda: mix, seed))
    result = Result(policy, seed)
    ahead = sorted(mark for mark in marks if mark <= target)
    at = iter([*[mark / 100 * capacity for mark in ahead], float("inf")])
    next_at, arrived, began = next(at), 0, time.perf_counter()
    for pod in stream:
        arrived += pod.milli
        number = view.shape(pod)
        row = view.best(number)
        result.attempts += 1
        if row is not None:
            view.take(row, number)
            result.placements += 1
        while arrived >= next_at:
            result.seconds += time.perf_counter() - began
            _measure(result, str(ahead.pop(0)), view, mix, capacity)
            told(100 * arrived / capacity)
            next_at, began = next(at), time.perf_counter()
        if next_at == float("inf"):
            break
    result.seconds += time.perf_counter() - began if ahead else 0.0
    return result


def _draw(
    stream: list[Shape], pods: Sequence[Shape], chance: random.Random, capacity: int, target: int
) -> None:
    """Append randomly drawn requests until all add up to the target, in % of the capacity."""
    wanted = sum(pod.milli for pod in stream)
    if not capacity or not wanted:
        lacks = "the nodes have no GPUs" if not capacity else "no request is for a GPU"
        raise BadConfiguration(lacks, remedy="give both: they are what is counted")
    while wanted < target / 100 * capacity:
        stream.append(chance.choice(pods))
        wanted += stream[-1].milli


def _measure(result: Result, mark: str, view: View, mix: Mix, capacity: int) -> None:
    idle = int(view.total.sum())
    lost = fragmented(view, mix)
    result.alloc_pct[mark] = round(100 * (capacity - idle) / capacity, 3)
    result.frag_pct_total[mark] = round(100 * lost / capacity, 3)
    result.frag_pct_idle[mark] = round(100 * lost / idle, 3) if idle else 0.0


def fragmented(view: View, mix: Mix) -> float:
    """Return the fragmentation of all nodes (F of the FGD paper), in thousandths of a GPU, for a view of any policy."""
    names = view.model_names()
    states = [
        Row(int(view.cpu[row]), int(view.mem[row]), tuple(free), names[view.model[row]], view.parts_of(row))
        for row, free in enumerate(view.free)
    ]
    measure = Fragmentation(mix)
    View(states, measure)
    return measure.fragmented()


def cluster(nodes: int, gpus: int, *, cpu_milli: int = 96_000, mem_mib: int = 393_216) -> list[Row]:
    """Return empty nodes that are all equal."""
    return [Row(cpu_milli, mem_mib, (WHOLE,) * gpus, "any")] * nodes
