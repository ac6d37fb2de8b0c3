"""Which pool a node is in. Pure."""

from collections.abc import Collection, Mapping, Sequence

from mesos_gpu.model.tenancy import DEFAULT_POOL, Pool


def pool_of(pools: Sequence[Pool], models: Collection[str], attributes: Mapping[str, str]) -> str:
    """The first pool, by name, all of whose conditions hold.

    Args:
        pools: Of the document.
        models: Of the GPUs of the node; none: it is in no pool that asks for models.
        attributes: Of its agent.
    """
    return min((pool.name for pool in pools if _holds(pool, models, attributes)), default=DEFAULT_POOL)


def _holds(pool: Pool, models: Collection[str], attributes: Mapping[str, str]) -> bool:
    alone = not pool.models or (bool(models) and all(model in pool.models for model in models))
    return alone and all(attributes.get(name) == value for name, value in pool.attributes.items())
