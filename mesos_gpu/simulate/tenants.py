"""Comparison of policies for many tenants, on equal traces, clusters, costs and figures."""

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
    """Figures of one policy.

    Attributes:
        policy: Name of the policy.
        figures: Means over all seeds.
        by_seed: Figures of each seed.
        more: Further figures of each seed.
    """

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
    """Run each policy on each scenario, and return the figures of each policy.

    Args:
        scenarios: Scenarios that differ in their seeds; at least one.
        policies: Names from `POLICIES`.
        document: Tree of queues of the engine; None for one made from the guarantees of tenants.
        told: Callback with the next run, in words.
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
    """Run all jobs until they end, by a policy other than `ALONE`."""
    if policy == NAME:
        return run_live(scenario, document)
    return Loop(scenario, BASELINES[policy]()).run(policy)


def owned_nodes(document: QueueDocument, tenants: Iterable[str], per_node: int) -> dict[str, int]:
    """Return the guarantee of each tenant in a document of queues, in whole nodes, at least one.

    Raises:
        BadConfiguration: A tenant has no leaf queue of its name.
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
    """Run each tenant on nodes of its own, as many as it is guaranteed, without borrowing."""
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
    """Return the number of nodes of a tenant, raised if its largest job would not fit and so wait for ever."""
    return max(nodes, -(-max((job.gpus for job in mine), default=1) // per_node))
