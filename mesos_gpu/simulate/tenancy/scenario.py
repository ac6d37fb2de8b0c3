"""Input of a simulation: submitted jobs, nodes, guarantees of tenants, and costs of a stop."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.words import counted
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.trace import TenantJob

#: Factors on guarantees of mean demand, to see the effect of wrong guarantees; 0 for equal ones.
WRONG: Final[Mapping[str, float]] = {"mean": 1.0, "half": 0.5, "double": 2.0, "equal": 0.0}


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of stopping a job.

    Attributes:
        checkpoint_s: Interval of checkpoints in time of work; None if a stop loses all work.
        restart_s: Time of each start but the first before work goes on.
        notice_s: Time that a job goes on after its notice. It makes no checkpoint for that.
    """

    checkpoint_s: float | None = 3600.0
    restart_s: float = 60.0
    notice_s: float = 0.0

    def kept_s(self, done_s: float, ran_s: float) -> float:
        """Return the work that a job keeps after a stop, of the work that it had kept before and did in this run."""
        if self.checkpoint_s is None:
            return 0.0
        return max(done_s, (done_s + ran_s) // self.checkpoint_s * self.checkpoint_s)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Input that is the same for every policy.

    Attributes:
        jobs: Jobs in the order of submission.
        cluster: Number and size of the nodes.
        guarantees: Whole nodes by tenant.
        costs: Costs of stopping a job.
        seed: 0 for the trace as it is; with another seed each tenant's arrivals begin elsewhere in its part of it.
    """

    jobs: tuple[TenantJob, ...]
    cluster: Cluster
    guarantees: Mapping[str, int]
    costs: Costs
    seed: int = 0

    def gpus(self, tenant: str) -> int:
        """Return the GPUs that a tenant is guaranteed."""
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
    """Return a scenario with arrivals spread, and each tenant's mean demand in whole nodes as its guarantee.

    Args:
        jobs: Jobs of a trace.
        cluster: Cluster that runs them.
        costs: Costs of stopping a job.
        stretch_s: Time over which each tenant's arrivals are spread; None for the times of the trace.
        load: Factor by which arrivals come faster; the guarantees stay.
        wrong: Name in `WRONG` of the change to the guarantees.
        owned: Guaranteed whole nodes by tenant, instead of those computed from demand.
        seed: 0 for the order of the trace. With another seed each tenant's arrivals are rotated within their time by
            chance, so that other peaks of tenants coincide.

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
    """Return the time of the last submission of each tenant."""
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
