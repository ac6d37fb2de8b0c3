"""`python -m bench placement`: placement decisions per second of each policy, and of a simple version in Python."""

import random
import statistics
import time
from dataclasses import dataclass
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import mix_of
from mesos_gpu.policy.cluster.registry import OFFERED, POLICIES
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import Policy, View

#: GPUs, thousandths of each, and requests of a thousand: about as in the trace of docs/placement.md.
_REQUESTS: Final = (
    (0, WHOLE, 133), (1, WHOLE, 480), (1, 810, 132), (1, 470, 92), (1, 320, 40), (1, 650, 31), (1, 230, 17),
    (1, 460, 16), (1, 160, 9), (1, 590, 9), (1, 550, 9), (2, WHOLE, 10), (4, WHOLE, 10), (8, WHOLE, 12),
)  # fmt: skip
_CPUS: Final = (2_000, 4_000, 6_000, 8_000, 11_900, 12_000, 16_000)
_PLAIN: Final = 200  # attempts of the simple version, which is slow
_NEW: Final = 50  # request shapes that are new to the policy


@click.command()
@click.option(
    "--attempts", default=20_000, show_default=True, type=click.IntRange(100), help="Attempts of each policy."
)
@click.option(
    "--runs", default=3, show_default=True, type=click.IntRange(1), help="Runs, whose median is printed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def placement(attempts: int, runs: int, as_json: bool) -> None:
    """Place requests on 1,213 nodes and on 10,000, by each policy and by plain Python."""
    requests = _requests(attempts)
    result: dict[str, object] = {}
    for nodes in (1_213, 10_000):
        for name in OFFERED:
            output.note(f"{name} on {nodes:,} nodes")
            rates = [
                _rates(
                    nodes, POLICIES[name].make(lambda: mix_of(requests), 0), requests, nodes * 8 > attempts
                )
                for _ in range(runs)
            ]
            result[f"{name}_{nodes}_attempts_per_s"] = round(statistics.median(rate for rate, _ in rates))
            result[f"{name}_{nodes}_new_shape_ms"] = round(statistics.median(new for _, new in rates), 3)
    output.note("plain Python on 1,213 nodes")
    result["plain_python_bundle_1213_attempts_per_s"] = round(_plain(1_213, requests[:_PLAIN]))
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "VALUE"), list(result.items()), empty="")


def _requests(count: int) -> list[Shape]:
    chance = random.Random(0)
    kinds, weights = [(gpus, milli) for gpus, milli, _ in _REQUESTS], [weight for *_, weight in _REQUESTS]
    shapes = []
    for gpus, milli in chance.choices(kinds, weights, k=count):
        cpus = chance.choice(_CPUS) * max(gpus, 1)
        shapes.append(Shape(cpus, cpus * 4, gpus, milli))
    return shapes


def _nodes(count: int) -> list[Row]:
    sizes = (8, 8, 8, 8, 2, 2, 4, 2)
    return [Row(12_000 * size, 48_000 * size, (WHOLE,) * size, "any") for size in sizes] * (count // 8 + 1)


def _rates(nodes: int, policy: Policy, requests: list[Shape], half_full: bool) -> tuple[float, float]:
    """Return attempts per second with bookkeeping, and milliseconds of a decision on a new shape."""
    view = View(_nodes(nodes)[:nodes], policy)
    if half_full:  # otherwise a large cluster would stay almost empty
        for used in range(0, nodes, 2):
            view.take(used, view.shape(Shape(2_000, 8_000, 1)))
    for shape in set(requests):
        view.shape(shape)
    began = time.perf_counter()
    for request in requests:
        number = view.shape(request)
        row = view.best(number)
        if row is not None:
            view.take(row, number)
    rate = len(requests) / (time.perf_counter() - began)
    new = []
    for odd in range(_NEW):
        began = time.perf_counter()
        view.best(view.shape(Shape(3_001 + odd, 9_001, 1 + odd % 2)))
        new.append((time.perf_counter() - began) * 1000)
    return rate, statistics.median(new)


@dataclass(slots=True)
class _Node:
    cpu: int
    mem: int
    gpus: list[int]


def _plain(nodes: int, requests: list[Shape]) -> float:
    """Return attempts per second of a simple version of `Bundle`: a loop over all nodes."""
    every = [_Node(node.cpu_milli, node.mem_mib, list(node.gpu_free_milli)) for node in _nodes(nodes)[:nodes]]
    began = time.perf_counter()
    for want in requests:
        able = [
            node
            for node in every
            if node.cpu >= want.cpu_milli
            and node.mem >= want.mem_mib
            and sum(milli >= want.gpu_milli for milli in node.gpus) >= want.gpus
        ]
        if able:
            _take(min(able, key=lambda node: (sum(node.gpus), node.cpu)), want)
    return len(requests) / (time.perf_counter() - began)


def _take(node: _Node, want: Shape) -> None:
    node.cpu -= want.cpu_milli
    node.mem -= want.mem_mib
    for _ in range(want.gpus):
        slot = min((left, i) for i, left in enumerate(node.gpus) if left >= want.gpu_milli)[1]
        node.gpus[slot] -= want.gpu_milli
