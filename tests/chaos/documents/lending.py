"""Acts that write trees of queues with lend limits, and with limits of inner queues, pools and users."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, Limits, Pool, QueueDocument, QueueSpec
from tests.chaos.queues import document_of
from tests.chaos.terms import CLASSES, USERS
from tests.chaos.world import MODELS, World

_OLD: Final = Pool("old", MODELS[1:])
_MAX_GPUS: Final = (1, 2, 3, 4)  # GPUs of a limit
_FEW: Final = (0, 1, 1, 2)  # GPUs that are lent or borrowed


def lending_of(a: int, b: int) -> QueueDocument:
    """Return the tree of `document_of` with lend limits, and with limits of inner queues, pools and users."""
    plain, dice = document_of(a, b), random.Random(a << 24 | b >> 3)
    pools = (_OLD,) if dice.random() < 0.4 else ()
    names = (DEFAULT_POOL, *(pool.name for pool in pools))
    queues = {path: _spec(dice, path, spec, names) for path, spec in plain.queues.items()}
    users = {user: _limits(dice) for user in USERS if dice.random() < 0.4}
    return replace(plain, queues=queues, pools=pools, classes=CLASSES[:2], users=users)


def _spec(dice: random.Random, path: str, spec: QueueSpec, pools: tuple[str, ...]) -> QueueSpec:
    owed: Mapping[str, Guarantee] = spec.guarantee_gpus
    if path in ("a", "a/x", "b"):
        more = (pool for pool in pools if pool not in owed and dice.random() < 0.5)
        owed = {**owed, **{pool: Guarantee(dice.choice(_MAX_GPUS) * WHOLE) for pool in more}}
    return replace(
        spec,
        guarantee_gpus=owed,
        lend_limit_gpus=_amounts(dice, [pool for pool in owed if dice.random() < 0.6], _FEW),
        borrow_limit_gpus=_amounts(dice, [pool for pool in pools if dice.random() < 0.2], _FEW),
        limit_gpus=_amounts(dice, [pool for pool in pools if dice.random() < 0.3], _MAX_GPUS),
    )


def _amounts(dice: random.Random, pools: list[str], gpus: tuple[int, ...]) -> Mapping[str, int]:
    return {pool: dice.choice(gpus) * WHOLE for pool in pools}


def _limits(dice: random.Random) -> Limits:
    if dice.random() < 0.5:
        return Limits(max_running=dice.choice(_MAX_GPUS))
    return Limits(max_gpus=dice.choice(_MAX_GPUS))


def _change(world: World, a: int, b: int) -> None:
    """Write another tree of queues with lend limits."""
    document = lending_of(a, b)
    words = ", ".join(f"{path} keeps {dict(spec.lend_limit_gpus)}" for path, spec in document.queues.items())
    world.say(f"an operator writes queues, after version {world.state.quota.queues.version}: {words}")
    world.inbox.append(ev.QueuesChanged(document, world.state.quota.queues.version))


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {"change lending": (0.0, _change)}
