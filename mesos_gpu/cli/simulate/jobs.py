"""`mesos-gpu simulate jobs`: how long the jobs of a trace take, by policy."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mesos_gpu.cli import output
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.scheduler.options.parse import NumberRange
from mesos_gpu.simulate.jobs import Cluster, Figures, Outcome, Prices, Tick, figures, simulate
from mesos_gpu.simulate.orders import ORDERS, PAUSES_S, RESTARTS_S
from mesos_gpu.simulate.trace import read_jobs

_F = TypeVar("_F", bound=Callable[..., Any])
_TOLD_EACH: Final = 100  # events


def cluster_options(nodes: int) -> Callable[[_F], _F]:
    """Return a decorator that adds --nodes and --gpus-per-node to a command; `nodes` is the default of --nodes."""
    of_node = click.option(
        "--gpus-per-node", type=click.IntRange(1, 64), default=8, show_default=True, help="GPUs of each node."
    )
    of_cluster = click.option(
        "--nodes", type=click.IntRange(1, 10_000), default=nodes, show_default=True, help="Number of nodes."
    )
    return lambda function: of_cluster(of_node(function))


def restart_option(more: str = "", default: float | None = None) -> Callable[[_F], _F]:
    """Return a decorator that adds --restart-s to a command; `more` is appended to its help."""
    return click.option(
        "--restart-s",
        type=NumberRange(0, 86_400),
        default=default,
        show_default=default is not None,
        help="Seconds that each restart of a job costs it." + more,
    )


@click.command()
@click.option(
    "--trace",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A CSV file: job_id, num_gpu (or a part of one), submit_time and duration (in ms).",
)
@cluster_options(nodes=8)
@click.option(
    "--policy",
    type=click.Choice(tuple(ORDERS)),
    default="mesos-gpu",
    show_default=True,
    help="Scheduling policy. srtf and srsf know the run time of each job in advance.",
)
@restart_option(" Default: 30 with mesos-gpu, else 0.")
@click.option(
    "--pause-s",
    type=NumberRange(0, 86_400),
    help="Seconds that each scheduling event costs each running job. Default: 10 with srtf, srsf and las, else 0.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the result to this file, as .svg or .png.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def jobs(
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    policy: str,
    restart_s: float | None,
    pause_s: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run a trace of jobs on a cluster, on a virtual clock.

    A job gets all its GPUs at once, on as few nodes as possible. A preempted job keeps its progress.
    The file may be gzipped.
    """
    cluster, traced = Cluster(nodes, gpus_per_node), read_jobs(trace)
    restart_s = RESTARTS_S.get(policy, 0.0) if restart_s is None else restart_s
    pause_s = PAUSES_S.get(policy, 0.0) if pause_s is None else pause_s
    watch = _Watch(cluster, len(traced), drawn=plot is not None)
    outcome = simulate(
        traced, cluster, ORDERS[policy], Prices(round(restart_s * 1000), round(pause_s * 1000)), watch.told
    )
    output.status_line.clear()
    if plot is not None:
        _draw(plot, policy, watch)
    measured = figures(traced, cluster, outcome)
    shown = _document(policy, len(traced), cluster, restart_s, pause_s, measured, outcome)
    if as_json:
        output.document(shown)
    else:
        output.table(("FIGURE", "VALUE"), [(name, _text(value)) for name, value in shown.items()], empty="")


def _document(
    policy: str,
    count: int,
    cluster: Cluster,
    restart_s: float,
    pause_s: float,
    measured: Figures,
    outcome: Outcome,
) -> dict[str, object]:
    return {
        "policy": policy,
        "knows_durations": ORDERS[policy].knows_durations,
        "jobs": count,
        "nodes": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "restart_s": restart_s,
        "pause_s": pause_s,
        **{name: round(value, 3) for name, value in asdict(measured).items()},
        "preemptions": outcome.preemptions,
        "moves": outcome.moves,
        "events": outcome.events,
    }


def _text(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


@dataclass(slots=True)
class _Watch:
    """Progress on the status line, and the points of the chart."""

    cluster: Cluster
    count: int
    drawn: bool
    seen: int = 0
    used: list[tuple[float, float]] = field(default_factory=list)
    waiting: list[tuple[float, float]] = field(default_factory=list)

    def told(self, tick: Tick) -> None:
        self.seen += 1
        if self.seen % _TOLD_EACH == 0:
            output.status_line.show(f"{tick.ended} of {self.count} jobs have ended")
        if self.drawn:
            days = tick.now_ms / 86_400_000
            held = sum(milli for where in tick.placed.values() for _, milli, _ in where)
            self.used.append((days, 100 * held / (self.cluster.gpus * WHOLE)))
            self.waiting.append((days, float(tick.waiting)))


def _draw(path: Path, policy: str, watch: _Watch) -> None:
    from mesos_gpu.simulate.plot import draw

    series = {"GPUs held, %": watch.used, "jobs that wait": watch.waiting}
    draw(path, f"{policy}, {watch.cluster.gpus} GPUs", series, x="days", y="% of the GPUs; jobs")
