"""What a document of queues must hold to, as far as that follows from itself alone. Pure."""

from collections.abc import Iterator
from datetime import date
from typing import Final

from mesos_gpu.model.jobs.job import DEFAULT_QUEUE
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    Budget,
    Hours,
    Idle,
    Period,
    QueueDocument,
    QueueSpec,
    find_zone,
)
from mesos_gpu.wire.checking import Problem, escaped
from mesos_gpu.wire.tenancy.kinds import gpus_of

_FIGURES: Final = ("guarantee_gpus", "borrow_limit_gpus", "lend_limit_gpus", "limit_gpus")


def faults(document: QueueDocument) -> Iterator[Problem]:
    """All that is wrong with a document whose fields are each for itself as they should be."""
    pools = {DEFAULT_POOL, *(pool.name for pool in document.pools)}
    for path, spec in document.queues.items():
        place = f"/queues/{escaped(path)}"
        yield from _of_place(document, path, place)
        yield from _of_figures(spec, place, pools)
        yield from _of_pools(document, path, place, pools)
        yield from _of_defaults(spec, place)
        yield from _of_idle(spec.idle, place)
        for index, hours in enumerate(spec.hours):
            yield from _of_hours(hours, f"{place}/hours/{index}", pools)
        for name, budget in _budgets(spec):
            yield from _of_budget(budget, f"{place}/{name}")
    yield from _of_sums(document)
    for each in document.classes:
        yield from _of_idle(each.idle, f"/classes/{escaped(each.name)}")
        for index, pool in enumerate(each.pools):
            if pool not in pools:
                yield Problem(f"/classes/{escaped(each.name)}/pools/{index}", _unknown(pool, pools))


def _of_place(document: QueueDocument, path: str, place: str) -> Iterator[Problem]:
    above = path.rpartition("/")[0]
    if above and above not in document.queues:
        yield Problem(
            place, f"there is no queue {above} that it could be below; add it, be it without fields"
        )
    if above == DEFAULT_QUEUE:
        yield Problem(place, "the queue default takes the jobs that name none: none can be below it")


def _of_figures(spec: QueueSpec, place: str, pools: set[str]) -> Iterator[Problem]:
    for key in _FIGURES:
        for pool in getattr(spec, key):
            if pool not in pools:
                yield Problem(f"{place}/{key}/{escaped(pool)}", _unknown(pool, pools))
    for pool, limit in spec.limit_gpus.items():
        owed = spec.guarantee_gpus.get(pool)
        if owed is not None and owed.milli > limit:
            why = f"{gpus_of(limit)} of pool {pool} is below the guarantee, {gpus_of(owed.milli)}"
            yield Problem(f"{place}/limit_gpus", why)


def _of_pools(document: QueueDocument, path: str, place: str, pools: set[str]) -> Iterator[Problem]:
    """What is wrong with the pools that a queue names, and with what it is guaranteed of those that it may not use."""
    named = document.queues[path].pools
    if named is not None and not named:
        yield Problem(
            f"{place}/pools", "must name a pool at least; left out, it is as the queue above has it"
        )
    may_use = _usable(document, path)
    above = _usable(document, path.rpartition("/")[0])
    for index, pool in enumerate(named or ()):
        if pool not in pools:
            yield Problem(f"{place}/pools/{index}", _unknown(pool, pools))
        elif above is not None and pool not in above:
            why = f"the queue above it may not use pool {pool}; it uses {', '.join(above)}"
            yield Problem(f"{place}/pools/{index}", why)
    dedicated = {pool.name for pool in document.pools if pool.dedicated}
    for pool, owed in document.queues[path].guarantee_gpus.items():
        barred = pool in dedicated if may_use is None else pool not in may_use
        if owed.milli and pool in pools and barred:
            why = f"it may not use pool {pool}: name it in its pools, or guarantee it nothing there"
            yield Problem(f"{place}/guarantee_gpus", why)


def _usable(document: QueueDocument, path: str) -> tuple[str, ...] | None:
    """The pools that a queue, or the nearest above it, names; None: none of them names any."""
    while path:
        spec = document.queues.get(path)
        if spec is not None and spec.pools:
            return spec.pools
        path = path.rpartition("/")[0]
    return None


def _unknown(pool: str, pools: set[str]) -> str:
    return f"there is no pool {pool}; there are {', '.join(sorted(pools))}"


def _of_defaults(spec: QueueSpec, place: str) -> Iterator[Problem]:
    for default, most in (("default_timeout_s", "max_timeout_s"), ("default_priority", "max_priority")):
        own, limit = getattr(spec, default), getattr(spec.limits, most)
        if own is not None and limit is not None and own > limit:
            yield Problem(f"{place}/{default}", f"{own:g} is above {most}, {limit:g}")


def _of_idle(idle: Idle | None, place: str) -> Iterator[Problem]:
    if idle is not None and idle.return_after_s <= idle.warn_after_s:
        why = (
            f"{idle.return_after_s:g} is no more than warn_after_s, {idle.warn_after_s:g}: "
            "a job is warned before it is ended"
        )
        yield Problem(f"{place}/idle/return_after_s", why)


def _budgets(spec: QueueSpec) -> Iterator[tuple[str, Budget]]:
    if spec.budget is not None:
        yield "budget", spec.budget
    for name, budget in spec.user_budgets.items():
        yield f"user_budgets/{escaped(name)}", budget


def _of_hours(hours: Hours, place: str, pools: set[str]) -> Iterator[Problem]:
    yield from _of_zone(hours.zone, place)
    for key in _FIGURES:
        for pool in getattr(hours, key):
            if pool not in pools:
                yield Problem(f"{place}/{key}/{escaped(pool)}", _unknown(pool, pools))


def _of_zone(zone: str, place: str) -> Iterator[Problem]:
    if find_zone(zone) is None:
        yield Problem(f"{place}/zone", f"there is no zone {zone[:80]}; write one as Europe/Vienna, or UTC")


def _of_budget(budget: Budget, place: str) -> Iterator[Problem]:
    yield from _of_zone(budget.zone, place)
    days = {key: _day(text) for key, text in (("from", budget.begins), ("to", budget.ends)) if text}
    for key in (key for key, day in days.items() if day is None):
        yield Problem(f"{place}/{key}", "there is no such day")
    if budget.period is not Period.ONCE:
        for key in days:
            yield Problem(f"{place}/{key}", f"is for the period once; this one is {budget.period.value}")
        return
    for key in ("from", "to"):
        if key not in days:
            yield Problem(f"{place}/{key}", "is missing: a budget that is there once has its days")
    first, last = days.get("from"), days.get("to")
    if first is not None and last is not None and last <= first:
        yield Problem(f"{place}/to", f"{last} is not after {first}")


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _of_sums(document: QueueDocument) -> Iterator[Problem]:
    """Guarantees of children that are above their parent's."""
    sums: dict[str, dict[str, int]] = {}
    for path, spec in document.queues.items():
        below = sums.setdefault(path.rpartition("/")[0], {})
        for pool, owed in spec.guarantee_gpus.items():
            below[pool] = below.get(pool, 0) + owed.milli
    for path, spec in document.queues.items():
        for pool, milli in sorted(sums.get(path, {}).items()):
            yield from _above(path, spec, pool, milli)


def _above(path: str, spec: QueueSpec, pool: str, milli: int) -> Iterator[Problem]:
    own = spec.guarantee_gpus.get(pool)
    has = own.milli if own is not None else 0
    if milli > has:
        why = (
            f"the queues below it are guaranteed {gpus_of(milli)} of pool {pool}, and it has {gpus_of(has)}: "
            "raise it, or lower theirs"
        )
        yield Problem(f"/queues/{escaped(path)}/guarantee_gpus", why)
