"""What is simulated: the jobs as they come, the nodes, what each tenant is guaranteed, and what a stop costs."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.words import counted
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.trace import TenantJob

#: What is done to the guarantees, to see what wrong ones do: those of mean demand times this; 0: all alike.
WRONG: Final[Mapping[str, float]] = {"mean": 1.0, "half": 0.5, "double": 2.0, "equal": 0.0}


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to stop a job.

    Attributes:
        checkpoint_s: What has been done is kept after each such time of work; None: nothing is.
        restart_s: What each start but the first takes before work goes on.
        notice_s: How long a job goes on after it was told to end. It keeps nothing more for that.
    """

    checkpoint_s: float | None = 3600.0
    restart_s: float = 60.0
    notice_s: float = 0.0

    def kept_s(self, done_s: float, ran_s: float) -> float:
        """What a job has after a stop of the work that it did before and in this run."""
        if self.checkpoint_s is None:
            return 0.0
        return max(done_s, (done_s + ran_s) // self.checkpoint_s * self.checkpoint_s)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run for every policy.

    Attributes:
        jobs: By submission.
        cluster: The nodes.
        guarantees: Whole nodes by tenant.
        costs: Of stops.
        seed: 0: the trace as it is; of another one, each tenant's arrivals begin elsewhere in it.
    """

    jobs: tuple[TenantJob, ...]
    cluster: Cluster
    guarantees: Mapping[str, int]
    costs: Costs
    seed: int = 0

    def gpus(self, tenant: str) -> int:
        """What the tenant is guaranteed."""
        return self.guarantees[tenant] * self.cluster.gpus_per_node


def arrange(
    jobs: Sequence[TenantJob],
    cluster: Cluster,
    costs: Costs,
    *,
    stretch_s: float | None,
    load: float = 1.0,
    wrong: str = "mean",
    owned: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Scenario:
    """Spread arrivals, and find what each tenant is guaranteed: its mean demand, in whole nodes.

    Args:
        jobs: Of a trace.
        cluster: Where they run.
        costs: Of stops.
        stretch_s: Over which each tenant's arrivals are spread; None: they are as in the trace.
        load: Arrivals come so much faster. The guarantees stay.
        wrong: A name of `WRONG`.
        owned: Whole nodes by tenant, instead of what is found.
        seed: 0: as it is. Another: each tenant's arrivals are turned round within their time, by chance, so that
            other peaks meet.

    Raises:
        BadConfiguration: A job is larger than the cluster.
    """
    largest = max(jobs, key=lambda job: job.gpus)
    if largest.gpus > cluster.gpus:
        raise BadConfiguration(
            f"job {largest.job_id} asks for {counted(largest.gpus, 'GPU')}, and the cluster has {cluster.gpus}",
            remedy="give --nodes or --gpus-per-node that hold it, or take it out of the trace",
        )
    spans = _spans(jobs)
    time_s = stretch_s if stretch_s is not None else max(spans.values()) or 1.0
    chance, tenants = random.Random(seed), sorted(spans)
    turn = {tenant: chance.random() if seed else 0.0 for tenant in tenants}
    placed = []
    for job in jobs:
        span = spans[job.tenant]
        part = job.submitted_s / span if span else 0.0
        if seed:
            part = (part + turn[job.tenant]) % 1.0
        own_s = time_s if stretch_s is not None else span
        placed.append(replace(job, submitted_s=round(part * own_s / load, 3)))
    placed.sort(key=lambda job: (job.submitted_s, job.job_id))
    if owned is None:
        owned = _guarantees(jobs, cluster, time_s, wrong)
    return Scenario(tuple(placed), cluster, owned, costs, seed)


def _spans(jobs: Sequence[TenantJob]) -> dict[str, float]:
    """When the last job of each tenant comes."""
    spans: dict[str, float] = defaultdict(float)
    for job in jobs:
        spans[job.tenant] = max(spans[job.tenant], job.submitted_s)
    return dict(spans)


def _guarantees(jobs: Sequence[TenantJob], cluster: Cluster, time_s: float, wrong: str) -> dict[str, int]:
    work: dict[str, float] = defaultdict(float)
    for job in jobs:
        work[job.tenant] += job.gpus * job.lasts_s
    if not (factor := WRONG[wrong]):
        return dict.fromkeys(sorted(work), max(1, cluster.nodes // len(work)))
    per_node = time_s * cluster.gpus_per_node
    whole = {tenant: max(1, round(work[tenant] / per_node)) for tenant in sorted(work)}
    return {tenant: max(1, round(factor * nodes)) for tenant, nodes in whole.items()}
