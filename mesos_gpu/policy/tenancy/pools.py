"""Assignment of nodes to pools. Pure."""

from collections.abc import Collection, Sequence
from functools import lru_cache

from mesos_gpu.model.jobs.pattern import matches
from mesos_gpu.model.nodes.gpu_names import means, specificity
from mesos_gpu.model.tenancy import DEFAULT_POOL, Pool
from mesos_gpu.policy.nodes.fields import Place, excluded

_matches = lru_cache(maxsize=16_384)(matches)  # each match evaluates the same few expressions for all nodes


def pool_of(pools: Sequence[Pool], models: Collection[str], place: Place) -> str:
    """Return the pool of a node: the first, by name, whose conditions all hold.

    If that pool asks for GPU models, a matching pool that names the node's models more specifically takes precedence.

    Args:
        pools: Pools of the document.
        models: GPU models of the node; without any, it is in no pool that asks for models.
        place: Attributes and location of the node.
    """
    able = [pool for pool in pools if _holds(pool, models, place)]
    if not able:
        return DEFAULT_POOL
    first = min(able, key=lambda pool: pool.name)
    if first.models and len(able) > 1:
        named = [pool for pool in able if pool.models]
        first = min(
            named, key=lambda pool: (-sum(specificity(model, pool.models) for model in models), pool.name)
        )
    return first.name


def pools_of_unreported(pools: Sequence[Pool], place: Place) -> frozenset[str]:
    """Return the pools that a node may turn out to be in while its GPUs are not reported yet.

    Args:
        pools: Pools of the document.
        place: Attributes and location of the node.
    """
    names = set[str]()
    for pool in sorted(pools, key=lambda pool: pool.name):
        if _is_place_of(pool, place):
            names.add(pool.name)
            if not pool.models:
                return frozenset(names)
    return frozenset(names | {DEFAULT_POOL})


def _holds(pool: Pool, models: Collection[str], place: Place) -> bool:
    """Return whether a node meets all conditions of a pool."""
    alone = not pool.models or (bool(models) and all(_names(pool, model) for model in models))
    return alone and _is_place_of(pool, place)


def _names(pool: Pool, model: str) -> bool:
    return model in pool.models or any(means(name, model) for name in pool.models)


def _is_place_of(pool: Pool, place: Place) -> bool:
    """Return whether a node meets the attributes and constraints of a pool."""
    has = all(place.attributes.get(name) == value for name, value in pool.attributes.items())
    return has and not any(excluded(constraint, place, _matches) for constraint in pool.constraints)
