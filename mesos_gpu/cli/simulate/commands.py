"""`mesos-gpu simulate`: the platform without a cluster."""

import statistics
from pathlib import Path
from typing import ClassVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.table import Table
from mesos_gpu.policy.cluster.registry import POLICIES
from mesos_gpu.simulate.inflation import MARKS, ORDERS, Result, run
from mesos_gpu.simulate.openb import read_nodes, read_pods


class _Simulate(Table):
    table: ClassVar = {
        "inflation": ("mesos_gpu.cli.simulate.commands", "Fill a cluster with requests until no more fit."),
        "jobs": ("mesos_gpu.cli.simulate.jobs", "Run a trace of jobs on a cluster, on a virtual clock."),
        "tenants": (
            "mesos_gpu.cli.simulate.tenants",
            "Run a trace of many tenants' jobs by several policies, and compare how fair they are.",
        ),
        "replay": (
            "mesos_gpu.cli.simulate.replay:command",
            "Replay a scheduler's journal, and compare the decisions with the recorded ones.",
        ),
    }


@click.group(cls=_Simulate)
def simulate() -> None:
    """The real policies and the real engine, on a virtual clock."""


@click.command()
@click.option(
    "--nodes",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A CSV file of nodes: cpu_milli, memory_mib, gpu, model.",
)
@click.option(
    "--pods",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A CSV file of requests: cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.",
)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default="bundle",
    show_default=True,
    help="Policy that chooses the node.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the random order of arrival, and of all random choices.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of seeds to run, from --seed on.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="permuted",
    show_default=True,
    help="Order of nodes and requests.",
)
@click.option(
    "--target",
    type=click.IntRange(1, 1000),
    default=130,
    show_default=True,
    help="Stop when so many GPUs were requested, in % of the cluster's GPUs.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it, as .svg or .png.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --seeds, one for each.")
def inflation(
    nodes: Path,
    pods: Path,
    policy: str,
    seed: int,
    seeds: int,
    order: str,
    target: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fill a cluster with requests until no more fit.

    Requests arrive one after the other, then again by chance; none ends. What counts is how much is allocated when
    as much was asked for as there is (100 %). Files may be gzipped.
    """
    cluster, requests = read_nodes(nodes), read_pods(pods)
    marks = sorted({*MARKS, *(range(2, target + 1, 2) if plot else ())})
    results = []
    for number in range(seed, seed + seeds):

        def told(arrived: float, number: int = number) -> None:
            output.status_line.show(f"seed {number}: {arrived:.0f} % of {target} % have arrived")

        results.append(
            run(cluster, requests, policy, number, order=order, target=target, marks=marks, told=told)
        )
        output.status_line.clear()
    if plot is not None:
        _draw(plot, results[0])
    if as_json:
        documents = [result.document() for result in results]
        output.document(documents if seeds > 1 else documents[0])
    else:
        _table(results)


def _table(results: list[Result]) -> None:
    """Print a table of the means over all seeds."""
    rows = []
    for mark in (str(mark) for mark in MARKS if str(mark) in results[0].alloc_pct):
        allocated = [result.alloc_pct[mark] for result in results]
        spread = statistics.stdev(allocated) if len(allocated) > 1 else None
        total, idle = (
            statistics.mean(values)
            for values in (
                [result.frag_pct_total[mark] for result in results],
                [result.frag_pct_idle[mark] for result in results],
            )
        )
        rows.append(
            (
                f"{mark} %",
                round(statistics.mean(allocated), 2),
                spread and round(spread, 2),
                round(total, 2),
                round(idle, 2),
            )
        )
    output.table(
        ("ARRIVED", "ALLOCATED %", "SD", "FRAGMENTED %", "OF THE IDLE %"), rows, empty="Nothing has arrived."
    )
    rate = statistics.median(result.attempts / result.seconds for result in results)
    output.line(f"{results[0].policy}: {rate:,.0f} attempts a second")


def _draw(path: Path, result: Result) -> None:
    from mesos_gpu.simulate.plot import draw

    series = {
        "allocated": [(float(mark), value) for mark, value in result.alloc_pct.items()],
        "fragmented": [(float(mark), value) for mark, value in result.frag_pct_total.items()],
    }
    draw(path, f"{result.policy}, seed {result.seed}", series, x="arrived, % of the GPUs", y="% of the GPUs")
