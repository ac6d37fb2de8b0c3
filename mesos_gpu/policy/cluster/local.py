"""Choice of GPUs on one node: close to each other, leaving GPUs that are close to each other as well. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu

#: Distance of two GPUs by the terms of `nvidia-smi topo -m`: over one PCIe switch, several, the host bridge, within
#: a NUMA node, between NUMA nodes. NVLink (NV1 to NV18) is closer than all, and closer with more links.
_FAR: Final[Mapping[str, int]] = {"PIX": 30, "PXB": 40, "PHB": 50, "NODE": 60, "SYS": 80}
_UNKNOWN, _NVLINK = 70, 20
_MAX: Final = 5_000  # largest number of sets to compare; with more, GPUs are added one by one
_NV: Final = re.compile(r"NV(\d+)")


def closest(free: Sequence[Gpu], count: int) -> tuple[GpuId, ...]:
    """Choose `count` of the free GPUs, all of one model, that are closest to each other; ties go by minor number."""
    gpus = sorted(free, key=lambda gpu: (gpu.memory_mib, gpu.minor, gpu.id))
    is_uniform = len({gpu.numa_node for gpu in gpus}) == 1 and not any(gpu.links for gpu in gpus)
    if count >= len(gpus) or is_uniform:
        return tuple([gpu.id for gpu in gpus[:count]])
    far = {(a.id, b.id): _distance(a, b) for a, b in combinations(gpus, 2)}
    if len(set(far.values())) <= 1:
        return tuple(gpu.id for gpu in gpus[:count])
    if math.comb(len(gpus), count) <= _MAX:
        return min(
            (tuple(gpu.id for gpu in chosen) for chosen in combinations(gpus, count)),
            key=lambda ids: (_within(ids, far), _within(_others(gpus, ids), far)),
        )
    return _grown(gpus, count, far)


def _distance(gpu: Gpu, other: Gpu) -> int:
    """Return the distance of two GPUs: by their link if one is reported, else by their NUMA nodes."""
    kind = next((link.kind for link in gpu.links if link.peer == other.id), "")
    kind = kind or next((link.kind for link in other.links if link.peer == gpu.id), "")
    if match := _NV.fullmatch(kind):
        return max(_NVLINK - int(match[1]), 0)
    if kind in _FAR:
        return _FAR[kind]
    if gpu.numa_node is None or other.numa_node is None:
        return _UNKNOWN
    return _FAR["NODE"] if gpu.numa_node == other.numa_node else _FAR["SYS"]


def _others(gpus: Sequence[Gpu], ids: Sequence[GpuId]) -> tuple[GpuId, ...]:
    return tuple(gpu.id for gpu in gpus if gpu.id not in ids)


def _within(ids: Sequence[GpuId], far: Mapping[tuple[GpuId, GpuId], int]) -> int:
    """Return the sum of the distances of all pairs; `ids` must be in the order of `far`."""
    return sum(far[pair] for pair in combinations(ids, 2))


def _grown(gpus: Sequence[Gpu], count: int, far: Mapping[tuple[GpuId, GpuId], int]) -> tuple[GpuId, ...]:
    """Grow a set from each GPU by adding the nearest GPU again and again; return the best of these sets."""

    def apart(gpu_id: GpuId, other: GpuId) -> int:
        return far[gpu_id, other] if (gpu_id, other) in far else far[other, gpu_id]

    sets = []
    for start in gpus:
        chosen, rest = [start.id], [gpu.id for gpu in gpus if gpu is not start]
        while len(chosen) < count:
            nearest = min(rest, key=lambda gpu: sum(apart(gpu, member) for member in chosen))
            rest.remove(nearest)
            chosen.append(nearest)
        sets.append(tuple(gpu.id for gpu in gpus if gpu.id in chosen))
    return min(sets, key=lambda ids: _within(ids, far))
