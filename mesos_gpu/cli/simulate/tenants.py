"""`mesos-gpu simulate tenants`: how fairly, and at what price, policies serve many tenants of one cluster."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from mesos_gpu.adapters.files.versioned import QUEUES
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.simulate.jobs import cluster_options, restart_option
from mesos_gpu.cli.types import DURATION
from mesos_gpu.cli.versioned.files import read_document
from mesos_gpu.scheduler.options.parse import NumberRange
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.scenario import WRONG, Costs, Scenario, arrange
from mesos_gpu.simulate.tenancy.trace import TenantTrace, read_tenants
from mesos_gpu.simulate.tenants import POLICIES, Judged, judge, owned_nodes

_HEADERS = (
    "POLICY", "UNFAIR %", "P99 DELAY H", "JCT H", "LOST GPU-H", "STOPS", "IN VAIN", "3X", "USED", "WORST %", "JAIN",
)  # fmt: skip


class _Span(click.ParamType[float | None]):
    """A time span as seconds, or none at all."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the seconds of a text such as `1h` or `60d`; None for `none`."""
        text = str(value)
        return None if text.strip().lower() == "none" else DURATION.convert(text, param, ctx)


@click.command()
@click.option(
    "--trace",
    required=True,
    type=click.Path(path_type=Path),
    help="A CSV file: job_id, tenant, num_gpu, submit_time and duration (in s), and user, preemptible, timeout if"
    " there are; Helios' cluster_log.csv; Philly's cluster_job_log.json; a folder of Gavel's *.trace.",
)
@cluster_options(nodes=40)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="Policy to run; may be repeated. Default: all.",
)
@click.option(
    "--checkpoint",
    type=_Span(),
    default="1h",
    show_default=True,
    help="Interval of checkpoints, in time of work; none: a stopped job loses all its work.",
)
@restart_option(default=60.0)
@click.option(
    "--notice-s",
    type=NumberRange(0, 86_400),
    default=0.0,
    show_default=True,
    help="Seconds that a job goes on after its notice to end.",
)
@click.option(
    "--load",
    type=NumberRange(0.01, 100),
    default=1.0,
    show_default=True,
    help="Factor by which jobs arrive faster.",
)
@click.option(
    "--stretch",
    type=_Span(),
    default="60d",
    show_default=True,
    help="Time over which the arrivals of each tenant's jobs are spread; none: as in the trace.",
)
@click.option(
    "--guarantees",
    type=click.Choice(tuple(WRONG)),
    default="mean",
    show_default=True,
    help="Guarantees of tenants: their mean demand in whole nodes, half or double that, or equal ones.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Number of seeds, from 0. 0 is the trace as it is; with others each tenant's jobs begin elsewhere in it.",
)
@click.option(
    "--queues",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Tree of queues, as for `queue apply`; its leaves have the names of tenants. Default: a queue for each.",
)
@json_option
def tenants(
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    policies: Sequence[str],
    checkpoint: float | None,
    restart_s: float,
    notice_s: float,
    load: float,
    stretch: float | None,
    guarantees: str,
    seeds: int,
    queues: Path | None,
    as_json: bool,
) -> None:
    """Run a trace of many tenants' jobs by several policies, and compare how fair they are.

    Each tenant is a queue that is guaranteed its mean demand. A job is unfairly served if it takes more than 1.05
    times as long as with its tenant alone on the nodes of its guarantee.
    """
    read = read_tenants(trace)
    document = None if queues is None else read_document(QUEUES, str(queues)).document
    owned = None
    if document is not None:
        owned = owned_nodes(document, (job.tenant for job in read.jobs), gpus_per_node)
    cluster, costs = Cluster(nodes, gpus_per_node), Costs(checkpoint, restart_s, notice_s)
    scenarios = [
        arrange(
            read.jobs, cluster, costs, stretch_s=stretch, load=load, wrong=guarantees, owned=owned, seed=seed
        )
        for seed in range(seeds)
    ]
    judged = judge(scenarios, policies or POLICIES, document, output.status_line.show)
    output.status_line.clear()
    if as_json:
        output.document(_document(read, scenarios, load, guarantees, judged))
        return
    rows = [(each.policy, *_cells(each)) for each in judged]
    output.table(_HEADERS, rows, empty="", fit=Fit(leave=("JAIN", "3X", "IN VAIN", "STOPS")))
    for words in _labels(read, scenarios[0]):
        output.line(words)


def _cells(judged: Judged) -> list[object]:
    return [round(value, 2) for value in asdict(judged.figures).values()]


def _labels(read: TenantTrace, scenario: Scenario) -> list[str]:
    """Return lines about the assumptions behind the figures."""
    owned = ", ".join(f"{tenant} {nodes}" for tenant, nodes in scenario.guarantees.items())
    labels = [f"guaranteed nodes: {owned}"]
    if read.users_drawn:
        labels.append("users: drawn by chance, the trace names none")
    labels += [f"left out: {count} jobs, {why}" for why, count in read.left_out.items()]
    return labels


def _document(
    read: TenantTrace, scenarios: Sequence[Scenario], load: float, guarantees: str, judged: Sequence[Judged]
) -> dict[str, object]:
    first = scenarios[0]
    return {
        "scenario": {
            "jobs": len(first.jobs),
            "nodes": first.cluster.nodes,
            "gpus_per_node": first.cluster.gpus_per_node,
            "checkpoint_s": first.costs.checkpoint_s,
            "restart_s": first.costs.restart_s,
            "notice_s": first.costs.notice_s,
            "load": load,
            "guarantees": guarantees,
            "guaranteed_nodes": dict(first.guarantees),
            "seeds": len(scenarios),
            "users_drawn": read.users_drawn,
            "left_out": dict(read.left_out),
        },
        "policies": {each.policy: asdict(each.figures) for each in judged},
        "by_seed": {each.policy: [asdict(figures) for figures in each.by_seed] for each in judged},
        "more": {each.policy: [asdict(more) for more in each.more] for each in judged},
    }
