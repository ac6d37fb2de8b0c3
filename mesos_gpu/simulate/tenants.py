"""Comparison of policies for many tenants: same trace, same cluster, same costs, same figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.simulate.baselines import BASELINES, Drf
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.figures import Figures, More, mean, measure
from mesos_gpu.simulate.tenancy.live import NAME, run_live
from mesos_gpu.simulate.tenancy.loop import Loop
from mesos_gpu.simulate.tenancy.record import Record, Span
from mesos_gpu.simulate.tenancy.scenario import Scenario
from mesos_gpu.simulate.tenancy.trace import TenantJob

ALONE: Final = "alone"
POLICIES: Final = (ALONE, *BASELINES, NAME)


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures of a policy, by seed and as the mean of all seeds."""

    policy: str
    figures: Figures
    by_seed: tuple[Figures, ...]
    more: tuple[More, ...]


def judge(
    scenarios: Sequence[Scenario],
    policies: Sequence[str],
    document: QueueDocument | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Judged]:
    """Run each policy on each scenario, which differ in their seeds.

    Args:
        scenarios: Scenarios; at least one.
        policies: Names in `POLICIES`.
        document: Queue document for the engine; None for a queue for each tenant with its guarantee.
        told: Function that is called with a text about each run before it begins.
    """
    judged: Mapping[str, list[tuple[Figures, More]]] = {policy: [] for policy in policies}
    for scenario in scenarios:
        told(f"seed {scenario.seed}: {ALONE}")
        own = run_alone(scenario)
        for policy in policies:
            told(f"seed {scenario.seed}: {policy}")
            record = own if policy == ALONE else run(scenario, policy, document)
            judged[policy].append(measure(scenario, record, own))
    return [
        Judged(
            policy,
            mean([each for each, _ in pairs]),
            tuple(each for each, _ in pairs),
            tuple(m for _, m in pairs),
        )
        for policy, pairs in judged.items()
    ]


def run(scenario: Scenario, policy: str, document: QueueDocument | None = None) -> Record:
    """Run all jobs of a scenario to their end under a policy, and return the record."""
    if policy == NAME:
        return run_live(scenario, document)
    return Loop(scenario, BASELINES[policy]()).run(policy)


def owned_nodes(document: QueueDocument, tenants: Iterable[str], per_node: int) -> dict[str, int]:
    """Return the whole nodes that a queue document guarantees each tenant, at least one.

    Raises:
        BadConfiguration: A tenant has no queue with its name, or that queue has queues below it.
    """
    nodes = {}
    leaves = {leaf.path: leaf for leaf in Tree(document).leaves()}
    for tenant in sorted(set(tenants)):
        if tenant not in leaves:
            raise BadConfiguration(
                f"the document of queues has no leaf for tenant {tenant}",
                remedy=f"give it one of that path; it has {', '.join(sorted(leaves)) or 'none'}",
            )
        milli = sum(owed.milli for owed in leaves[tenant].spec.guarantee_gpus.values())
        nodes[tenant] = max(1, -(-milli // (per_node * WHOLE)))
    return nodes


def run_alone(scenario: Scenario) -> Record:
    """Run each tenant alone, on as many nodes as it is guaranteed; return the common record."""
    ended: dict[str, float] = {}
    spans: dict[str, Sequence[Span]] = {}
    for tenant, nodes in scenario.guarantees.items():
        mine = tuple(job for job in scenario.jobs if job.tenant == tenant)
        per_node = scenario.cluster.gpus_per_node
        cluster = Cluster(_enough(mine, nodes, per_node), per_node)
        own = replace(scenario, jobs=mine, cluster=cluster, guarantees={tenant: nodes})
        record = Loop(own, Drf()).run(ALONE)
        ended |= record.ended_s
        spans |= record.spans
    return Record(ALONE, ended, spans, ())


def _enough(mine: Sequence[TenantJob], nodes: int, per_node: int) -> int:
    """Return the nodes for a tenant alone: its guarantee, or more if its largest job needs more."""
    return max(nodes, -(-max((job.gpus for job in mine), default=1) // per_node))
