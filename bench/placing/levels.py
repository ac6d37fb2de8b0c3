"""`python -m bench levels`: the search for a gang's nodes in a network fabric, and the number of racks it uses."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from time import thread_time
from typing import Final

import click

from bench.queues import MemoryCluster
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.constraint import HOST, Topology
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.rules import level_field, level_rules
from mesos_gpu.policy.gangs.search import search

NODES: Final = 2_000
TASKS: Final = 256
GPUS: Final = 8  # of each node
LEVELS: Final = {"block": 200, "rack": 10}  # nodes in each group
_FABRICS: Final = 20
_WISHES: Final = {
    "none": None,
    "preferred_rack": Topology("rack", False),
    "preferred_block": Topology("block", False),
    "required_block": Topology(
        "block", True
    ),  # without whole nodes: a block has fewer than the gang has tasks
}


@click.command()
@click.option("--instances", default=500, show_default=True, type=click.IntRange(1), help="Small fabrics.")
@json_option
def levels(instances: int, as_json: bool) -> None:
    """Place gangs of 256 tasks on 2,000 nodes in 200 racks of 10 blocks, some of whose GPUs are in use.

    Figures are processor time in ms. Then gangs are placed on small fabrics: the racks that they use, divided by the
    fewest possible.
    """
    result: dict[str, float] = {}
    for name in _WISHES:
        output.note(f"the search, topology {name.replace('_', ':')}")
        for kind, size in (("", GPUS), ("whole_nodes_", 1)):
            took = [_search_ms(name, seed, size) for seed in range(_FABRICS)]
            result[f"search_{kind}{name}_ms"] = round(statistics.median(took), 1)
            result[f"search_{kind}{name}_most_ms"] = round(max(took), 1)
    for name in _WISHES:
        output.note(f"a match, topology {name.replace('_', ':')}")
        result[f"match_{name}_ms"] = round(_match_ms(name), 1)
    output.note(f"{instances} small fabrics")
    result["racks_by_fewest"] = round(_racks_by_fewest(instances), 4)
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "VALUE"), list(result.items()), empty="")


def _spec(name: str, tasks: int = TASKS, gpus: int = 1) -> JobSpec:
    return JobSpec("gang", command="true", tasks=tasks, gpus=gpus, cpus=0.1, topology=_WISHES[name])


def _sites(rooms: Sequence[int]) -> list[Site]:
    """Return nodes with room for some tasks each, in racks and blocks."""
    fields = {level_field(level): size for level, size in (LEVELS | {HOST: 1}).items()}
    return [
        Site(room, {field: f"{field}-{i // size}" for field, size in fields.items()}, i * 7919 % 1000)
        for i, room in enumerate(rooms)
    ]


def _search_ms(name: str, seed: int, size: int) -> float:
    """Return the processor time of a search.

    Args:
        name: Name of the wish.
        seed: Seed of the rooms, which are drawn rack by rack.
        size: Number of tasks that a node without other tasks has room for.
    """
    sites = _sites([room * size // GPUS for room in _rooms(random.Random(seed))])
    rules = list(level_rules(_spec(name), (*LEVELS, HOST)))
    before = thread_time()
    search(TASKS, sites, rules)
    return (thread_time() - before) * 1000


def _rooms(chance: random.Random) -> list[int]:
    """Draw the free GPUs of each node, in racks of which some are free and others are in use."""
    rooms = []
    for _ in range(NODES // LEVELS["rack"]):
        most = chance.choice((0, 2, 4, 8))
        rooms += [GPUS if most == GPUS else chance.randint(0, most) for _ in range(LEVELS["rack"])]
    return rooms


def _match_ms(name: str) -> float:
    """Return the processor time of the match that launches a gang."""
    cluster = MemoryCluster(LEVELS)
    cluster.arrive(NODES, GPUS)
    cluster.step(ev.JobSubmitted(JobId("gang-0a1b2c3d"), _spec(name)))
    cluster.offer("free", _rooms(random.Random(0)), cpus=100)
    before = thread_time()
    effects = cluster.match()
    took_ms = (thread_time() - before) * 1000
    launched = sum(len(each.tasks) for each in effects if isinstance(each, fx.Launch))
    assert launched == TASKS, f"{launched} of {TASKS} tasks were launched"
    return took_ms


# --- small fabrics


def _racks_by_fewest(instances: int) -> float:
    """Return the mean number of racks of gangs that prefer few, by the fewest possible."""
    ratios = []
    for seed in range(instances):
        chance = random.Random(seed)
        rooms = [chance.choice((0, 1, 2, 4, 8)) for _ in range(chance.randint(8, 80))]
        tasks = chance.randint(2, max(2, sum(rooms)))
        rules = list(level_rules(_spec("preferred_rack"), (*LEVELS, HOST)))
        sites = [replace(site, room=min(site.room, tasks)) for site in _sites(rooms)]
        counts = search(tasks, sites, rules).counts
        if counts is not None:
            rack = level_field("rack")
            used = len({site.values[rack] for site, count in zip(sites, counts, strict=True) if count})
            ratios.append(used / _fewest_racks(tasks, rooms))
    return statistics.fmean(ratios)


def _fewest_racks(tasks: int, rooms: Sequence[int]) -> int:
    """Return the fewest racks that have room for all tasks, of all sets of racks."""
    size = LEVELS["rack"]
    racks = [sum(rooms[i : i + size]) for i in range(0, len(rooms), size)]
    return next(
        count
        for count in range(1, len(racks) + 1)
        if any(sum(some) >= tasks for some in combinations(racks, count))
    )
