"""Limits and weights of Mesos' roles that follow from the tree of queues.

Mesos counts GPUs, whatever their model, and the tree counts cost. A limit of a role is the most GPUs that a queue could
hold of its limit, so that Mesos never refuses what the tree allows; what is kept from others is the most GPUs that the
guarantees could be. Guarantees of Mesos itself are left alone: since 1.9 they are deprecated, and hold offers back from
everybody.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from mesos_gpu.policy.tenancy.tree import Tree

_COST: Final = 1000  # thousandths


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a role should have.

    Attributes:
        role: Of Mesos.
        limit_gpus: The most GPUs; None: no limit.
        weight: Beside other roles; None: it is left as it is, as of others, or where queues weigh nothing: Mesos has no
            weight of 0.
        why: What of the tree it follows from, for people.
        of_others: Whether no queue has it.
    """

    role: str
    limit_gpus: int | None
    weight: float | None
    why: str
    of_others: bool = False


def wanted(
    document: QueueDocument,
    pools: Mapping[str, Mapping[str, int]],
    role: str,
    role_of: Mapping[str, str],
    others: Collection[str],
) -> list[Wanted]:
    """All roles, ours first.

    Args:
        document: The tree.
        pools: By pool, how many GPUs of each model its nodes have.
        role: The scheduler's, of all queues that have none of their own.
        role_of: By top queue, its own role.
        others: Roles of other frameworks, which must leave what is guaranteed.

    Raises:
        KeyError: A queue of `role_of` is no top queue.
    """
    tree = Tree(document)
    made = [_of_queues(tree, pools, role, [path for path in tree.top if path not in role_of])]
    made += [_of_queues(tree, pools, own, [queue]) for queue, own in sorted(role_of.items())]
    kept = sum(promised(document, pools, tree.queues[path].spec) for path in tree.top)
    total = sum(sum(models.values()) for models in pools.values())
    why = f"{total} GPUs, of which queues are guaranteed {min(kept, total)}"
    ours = {each.role for each in made}
    left = max(total - kept, 0)
    return [*made, *(Wanted(each, left, None, why, of_others=True) for each in sorted({*others} - ours))]


def in_all_hours(plans: Sequence[Sequence[Wanted]], others: Collection[str]) -> list[Wanted]:
    """What roles should have whatever the hour is: those of queues as much as they may ever have, those of others no
    more than is always left. Weights are those of the first plan.

    Args:
        plans: Of `wanted`, each with the figures of other hours; the same roles in all.
        others: Roles of other frameworks.
    """

    def most(each: Wanted) -> float:
        return inf if each.limit_gpus is None else each.limit_gpus

    made = []
    for of_role in zip(*plans, strict=True):
        decides = (min if of_role[0].role in others else max)(of_role, key=most)
        made.append(replace(of_role[0], limit_gpus=decides.limit_gpus, why=decides.why))
    return made


def promised(document: QueueDocument, pools: Mapping[str, Mapping[str, int]], spec: QueueSpec) -> int:
    """The most GPUs that a queue's guarantees could be, of those that there are."""
    owed = 0
    for pool, guarantee in spec.guarantee_gpus.items():
        models = pools.get(pool, {})
        owed += min(-(-guarantee.milli // _least_cost(document, models)), sum(models.values()))
    return owed


def _of_queues(
    tree: Tree, pools: Mapping[str, Mapping[str, int]], role: str, queues: Sequence[str]
) -> Wanted:
    """What a role has that these top queues share."""
    limits = {queue: _limit(tree, pools, queue) for queue in queues}
    weight = float(sum(tree.queues[queue].spec.weight for queue in queues)) or None
    if free := sorted(queue for queue, limit in limits.items() if limit is None):
        return Wanted(role, None, weight, f"nothing limits {', '.join(free)}")
    if not limits:
        return Wanted(role, None, weight, "every queue has a role of its own")
    return Wanted(
        role, sum(limit or 0 for limit in limits.values()), weight, f"limits of {', '.join(limits)}"
    )


def _limit(tree: Tree, pools: Mapping[str, Mapping[str, int]], queue: str) -> int | None:
    """The most GPUs that a queue may hold in all pools; None: it may hold all that there are."""
    most = {bound.pool: bound.milli for bound in tree.bounds.get(queue, ())}
    there = {pool: sum(models.values()) for pool, models in pools.items()}
    may = {
        pool: min(most[pool] // _least_cost(tree.document, models), there[pool])
        if pool in most
        else there[pool]
        for pool, models in pools.items()
    }
    return None if may == there else sum(may.values())


def _least_cost(document: QueueDocument, models: Mapping[str, int]) -> int:
    """Thousandths of cost of the cheapest GPU there."""
    return _COST * min(map(document.cost_of, models), default=1)
