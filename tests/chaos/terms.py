"""Acts that write trees of queues with pools, classes and budgets, and that set clocks back."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Budget,
    Guarantee,
    JobClass,
    Limits,
    OnEmpty,
    Period,
    Pool,
    QueueDocument,
    QueueSpec,
)
from tests.chaos.queues import document_of
from tests.chaos.world import MODELS, World

USERS: Final = ("alice", "bob")
CLASSES: Final = (
    JobClass("steady", preemptible=False, charge_percent=150),
    JobClass("cheap", preemptible=True, charge_percent=50, queues=("a*", "b")),
    JobClass("old", pools=("old",), charge_percent=0),
)
_OLD: Final = Pool("old", MODELS[1:])
#: Thousandths of cost times seconds: soon empty, empty after a while, and never.
_AMOUNTS: Final = (0, 60_000, 2_000_000, 10**10)
_HALF_LIVES_S: Final = (60, 3600, 7 * 86_400)
_CLOCKS_S: Final = (0.5, 5.0, 120.0, 5_000.0, 90_000.0)
_EARLIEST_S: Final = 500_000.0


def _budget(dice: random.Random) -> Budget | None:
    if dice.random() < 0.4:
        return None
    return Budget(
        dice.choice(_AMOUNTS),
        period=dice.choice((Period.DAY, Period.DAY, Period.WEEK, Period.MONTH)),
        zone=dice.choice(("UTC", "Europe/Vienna")),
        carry_over_percent=dice.choice((0, 0, 50, 100)),
        on_empty=dice.choice(tuple(OnEmpty)),
        safe=dice.random() < 0.2,
    )


def _spec(dice: random.Random, path: str, spec: QueueSpec, pools: bool) -> QueueSpec:
    """Return a queue with budgets of its own and of users in it, and with a guarantee in the pool."""
    own = {user: budget for user in (*USERS, EVERYBODY) if (budget := _budget(dice)) and dice.random() < 0.3}
    owed: Mapping[str, Guarantee] = spec.guarantee_gpus
    if pools and path in ("a", "b"):
        owed = {**owed, _OLD.name: Guarantee(dice.choice((0, 1, 2)) * WHOLE)}
    return replace(spec, budget=_budget(dice), user_budgets=own, guarantee_gpus=owed)


def _document(a: int, b: int) -> QueueDocument:
    plain, dice = document_of(a, b), random.Random(a << 24 | b >> 3)
    pools = dice.random() < 0.5
    queues = {path: _spec(dice, path, spec, pools) for path, spec in plain.queues.items()}
    return replace(
        plain,
        queues=queues,
        pools=(_OLD,) if pools else (),
        classes=CLASSES if pools else CLASSES[:2],
        users={"bob": Limits(max_running=2)} if dice.random() < 0.3 else {},
        half_life_s=dice.choice(_HALF_LIVES_S),
        history_percent=dice.choice((0, 50)),
    )


def _change(world: World, a: int, b: int) -> None:
    """Write another tree with pools, classes and budgets."""
    document = _document(a, b)
    world.say(
        f"an operator writes queues, after version {world.state.quota.queues.version}: {_words(document)}"
    )
    world.inbox.append(ev.QueuesChanged(document, world.state.quota.queues.version))


def _words(document: QueueDocument) -> str:
    told = [f"{path}: {_named(spec)}" for path, spec in document.queues.items()]
    names = ", ".join([*(pool.name for pool in document.pools), *(each.name for each in document.classes)])
    return f"{'; '.join(told)}; {names}; half-life {document.half_life_s} s; cost {dict(document.gpu_cost)}"


def _named(spec: QueueSpec) -> str:
    plain, said = QueueSpec(), []
    for name in QueueSpec.__slots__:
        value = getattr(spec, name)
        if value != getattr(plain, name):
            one = isinstance(value, Mapping) and set(value) == {DEFAULT_POOL}
            said.append(f"{name} {value[DEFAULT_POOL] if one else value}")
    return ", ".join(said) or "nothing"


def _set_clock(world: World, a: int, b: int) -> None:
    """Set the clock of the scheduler's host back."""
    back_s = _CLOCKS_S[a % len(_CLOCKS_S)]
    if world.now - back_s >= _EARLIEST_S:
        world.say(f"the clock is set back by {back_s:g} s")
        world.set_clock(-back_s)


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "change terms": (0.0, _change),
    "set clock": (0.0, _set_clock),
}
