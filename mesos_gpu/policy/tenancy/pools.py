"""Which pool a node is in. Pure."""

from collections.abc import Collection, Sequence
from functools import lru_cache

from mesos_gpu.model.jobs.pattern import matches
from mesos_gpu.model.nodes.gpu_names import means, specificity
from mesos_gpu.model.tenancy import DEFAULT_POOL, Pool
from mesos_gpu.policy.nodes.fields import Place, excluded

_matches = lru_cache(maxsize=16_384)(matches)  # the same few expressions, of all nodes, in each match


def pool_of(pools: Sequence[Pool], models: Collection[str], place: Place) -> str:
    """The first pool, by name, all of whose conditions hold.

    If that one asks for models, one that names those of the node more specifically comes before it.

    Args:
        pools: Of the document.
        models: Of the GPUs of the node; none: it is in no pool that asks for models.
        place: The node.
    """
    able = [pool for pool in pools if _holds(pool, models, place)]
    if not able:
        return DEFAULT_POOL
    first = min(able, key=lambda pool: pool.name)
    if first.models and len(able) > 1:
        named = [pool for pool in able if pool.models]
        first = min(
            named, key=lambda pool: (-sum(specificity(each, pool.models) for each in models), pool.name)
        )
    return first.name


def pools_of_unreported(pools: Sequence[Pool], place: Place) -> frozenset[str]:
    """Return the pools that a node may be in whose GPUs are not known yet.

    Args:
        pools: Pools of the document.
        place: The node.
    """
    names = set[str]()
    for pool in sorted(pools, key=lambda each: each.name):
        if _is_place_of(pool, place):
            names.add(pool.name)
            if not pool.models:
                return frozenset(names)
    return frozenset(names | {DEFAULT_POOL})


def _holds(pool: Pool, models: Collection[str], place: Place) -> bool:
    alone = not pool.models or (bool(models) and all(_names(pool, model) for model in models))
    return alone and _is_place_of(pool, place)


def _names(pool: Pool, model: str) -> bool:
    """Whether a pool names a model."""
    return model in pool.models or any(means(name, model) for name in pool.models)


def _is_place_of(pool: Pool, place: Place) -> bool:
    """Whether the attributes and constraints of a pool hold for a node."""
    has = all(place.attributes.get(name) == value for name, value in pool.attributes.items())
    return has and not any(excluded(each, place, _matches) for each in pool.constraints)
