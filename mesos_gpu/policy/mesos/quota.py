"""Limits and weights of Mesos' roles that follow from the tree of queues.

Mesos counts GPUs, whatever their model, and the tree counts cost. A role's limit is the largest number of GPUs that a
queue could hold within its own limit, so that Mesos never refuses what the tree allows; roles of others are limited to
what the guarantees leave even if they take the most GPUs. Guarantees of Mesos itself are not used: since 1.9 they are
deprecated, and hold offers back from all frameworks.
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
    """Settings that a role should have.

    Attributes:
        role: Role in Mesos.
        limit_gpus: Largest number of GPUs; None without a limit.
        weight: Weight against other roles; None to leave it unchanged, for roles of others and for queues of weight 0,
            which Mesos does not have.
        why: Source of the settings in the tree, as text.
        of_others: Whether the role belongs to other frameworks only.
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
    """Return the settings of all roles, those of the scheduler first.

    Args:
        document: Document of the queues.
        pools: Number of GPUs by pool and model.
        role: Role of the scheduler, for all queues without a role of their own.
        role_of: Own roles of top queues, by queue.
        others: Roles of other frameworks, which must leave what is guaranteed.

    Raises:
        KeyError: A queue of `role_of` is not a top queue.
    """
    tree = Tree(document)
    settings = [_of_queues(tree, pools, role, [path for path in tree.top if path not in role_of])]
    settings += [_of_queues(tree, pools, own, [queue]) for queue, own in sorted(role_of.items())]
    guaranteed = sum(promised(document, pools, tree.queues[path].spec) for path in tree.top)
    total = sum(sum(models.values()) for models in pools.values())
    why = f"{total} GPUs, of which queues are guaranteed {min(guaranteed, total)}"
    own_roles = {setting.role for setting in settings}
    left = max(total - guaranteed, 0)
    return [
        *settings,
        *(Wanted(other, left, None, why, of_others=True) for other in sorted({*others} - own_roles)),
    ]


def in_all_hours(plans: Sequence[Sequence[Wanted]], others: Collection[str]) -> list[Wanted]:
    """Return settings that suit all hours: for queues' roles the largest limits, for others' roles the smallest.

    Weights are those of the first plan.

    Args:
        plans: Results of `wanted`, with the figures of different hours, all for equal roles.
        others: Roles of other frameworks.
    """

    def most(setting: Wanted) -> float:
        """Return the limit of a role, infinite without one."""
        return inf if setting.limit_gpus is None else setting.limit_gpus

    settings = []
    for of_role in zip(*plans, strict=True):
        decides = (min if of_role[0].role in others else max)(of_role, key=most)
        settings.append(replace(of_role[0], limit_gpus=decides.limit_gpus, why=decides.why))
    return settings


def promised(document: QueueDocument, pools: Mapping[str, Mapping[str, int]], spec: QueueSpec) -> int:
    """Return the largest number of existing GPUs that a queue's guarantees may come to."""
    owed = 0
    for pool, guarantee in spec.guarantee_gpus.items():
        models = pools.get(pool, {})
        owed += min(-(-guarantee.milli // _least_cost(document, models)), sum(models.values()))
    return owed


def _of_queues(
    tree: Tree, pools: Mapping[str, Mapping[str, int]], role: str, queues: Sequence[str]
) -> Wanted:
    """Return the settings of a role that these top queues share."""
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
    """Return the largest number of GPUs that a queue may hold in all pools; None if it may hold all."""
    bounds = {bound.pool: bound.milli for bound in tree.bounds.get(queue, ())}
    available = {pool: sum(models.values()) for pool, models in pools.items()}
    allowed = {
        pool: min(bounds[pool] // _least_cost(tree.document, models), available[pool])
        if pool in bounds
        else available[pool]
        for pool, models in pools.items()
    }
    return None if allowed == available else sum(allowed.values())


def _least_cost(document: QueueDocument, models: Mapping[str, int]) -> int:
    """Return the cost of the cheapest GPU among these models, in thousandths."""
    return _COST * min(map(document.cost_of, models), default=1)
