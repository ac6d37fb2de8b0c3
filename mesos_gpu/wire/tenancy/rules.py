"""Rules of the queue document that involve several fields, checked from the document alone; pure functions."""

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
    """Yield all problems of a document whose single fields are valid."""
    pools = {DEFAULT_POOL, *(pool.name for pool in document.pools)}
    for path, spec in document.queues.items():
        place = f"/queues/{escaped(path)}"
        yield from _path_problems(document, path, place)
        yield from _amount_problems(spec, place, pools)
        yield from _pool_problems(document, path, place, pools)
        yield from _default_problems(spec, place)
        yield from _idle_problems(spec.idle, place)
        for index, hours in enumerate(spec.hours):
            yield from _hours_problems(hours, f"{place}/hours/{index}", pools)
        for name, budget in _budgets(spec):
            yield from _budget_problems(budget, f"{place}/{name}")
    yield from _sum_problems(document)
    for job_class in document.classes:
        yield from _idle_problems(job_class.idle, f"/classes/{escaped(job_class.name)}")
        for index, pool in enumerate(job_class.pools):
            if pool not in pools:
                yield Problem(f"/classes/{escaped(job_class.name)}/pools/{index}", _unknown(pool, pools))


def _path_problems(document: QueueDocument, path: str, place: str) -> Iterator[Problem]:
    """Yield problems of the position of a queue in the tree."""
    above = path.rpartition("/")[0]
    if above and above not in document.queues:
        yield Problem(place, f"there is no queue {above} above it; add that queue, which may have no fields")
    if above == DEFAULT_QUEUE:
        yield Problem(
            place,
            "the queue default is for jobs without queue, and cannot have queues below it; choose another path",
        )


def _amount_problems(spec: QueueSpec, place: str, pools: set[str]) -> Iterator[Problem]:
    """Yield problems of amounts in unknown pools, and of limits below the guarantee."""
    for key in _FIGURES:
        for pool in getattr(spec, key):
            if pool not in pools:
                yield Problem(f"{place}/{key}/{escaped(pool)}", _unknown(pool, pools))
    for pool, limit in spec.limit_gpus.items():
        owed = spec.guarantee_gpus.get(pool)
        if owed is not None and owed.milli > limit:
            why = f"{gpus_of(limit)} of pool {pool} is below the guarantee, {gpus_of(owed.milli)}; raise it"
            yield Problem(f"{place}/limit_gpus", why)


def _pool_problems(document: QueueDocument, path: str, place: str, pools: set[str]) -> Iterator[Problem]:
    """Yield problems of the pools that a queue names, and of guarantees in pools that it may not use."""
    named = document.queues[path].pools
    if named is not None and not named:
        yield Problem(
            f"{place}/pools",
            "must have at least one pool; leave it out to inherit the pools of the queue above",
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
            why = f"it may not use pool {pool}; add that to its pools, or remove the guarantee"
            yield Problem(f"{place}/guarantee_gpus", why)


def _usable(document: QueueDocument, path: str) -> tuple[str, ...] | None:
    """Return the pools that a queue names, or else the nearest queue above it; None if none names any."""
    while path:
        spec = document.queues.get(path)
        if spec is not None and spec.pools:
            return spec.pools
        path = path.rpartition("/")[0]
    return None


def _unknown(pool: str, pools: set[str]) -> str:
    return f"there is no pool {pool}; pools are {', '.join(sorted(pools))}"


def _default_problems(spec: QueueSpec, place: str) -> Iterator[Problem]:
    for default, most in (("default_timeout_s", "max_timeout_s"), ("default_priority", "max_priority")):
        own, limit = getattr(spec, default), getattr(spec.limits, most)
        if own is not None and limit is not None and own > limit:
            yield Problem(f"{place}/{default}", f"{own:g} is above {most}, {limit:g}; lower it")


def _idle_problems(idle: Idle | None, place: str) -> Iterator[Problem]:
    if idle is not None and idle.return_after_s <= idle.warn_after_s:
        why = (
            f"{idle.return_after_s:g} must be more than warn_after_s, {idle.warn_after_s:g}, as "
            "a job is warned before it is ended"
        )
        yield Problem(f"{place}/idle/return_after_s", why)


def _budgets(spec: QueueSpec) -> Iterator[tuple[str, Budget]]:
    if spec.budget is not None:
        yield "budget", spec.budget
    for name, budget in spec.user_budgets.items():
        yield f"user_budgets/{escaped(name)}", budget


def _hours_problems(hours: Hours, place: str, pools: set[str]) -> Iterator[Problem]:
    yield from _zone_problems(hours.zone, place)
    for key in _FIGURES:
        for pool in getattr(hours, key):
            if pool not in pools:
                yield Problem(f"{place}/{key}/{escaped(pool)}", _unknown(pool, pools))


def _zone_problems(zone: str, place: str) -> Iterator[Problem]:
    if find_zone(zone) is None:
        yield Problem(
            f"{place}/zone", f"there is no time zone {zone[:80]}; set one such as Europe/Vienna or UTC"
        )


def _budget_problems(budget: Budget, place: str) -> Iterator[Problem]:
    """Yield problems of the time zone and the days of a budget."""
    yield from _zone_problems(budget.zone, place)
    days = {key: _day(text) for key, text in (("from", budget.begins), ("to", budget.ends)) if text}
    for key in (key for key, day in days.items() if day is None):
        yield Problem(f"{place}/{key}", "there is no such day; write it as 2026-11-22")
    if budget.period is not Period.ONCE:
        for key in days:
            yield Problem(
                f"{place}/{key}",
                f"is only for period once, but the period is {budget.period.value}; leave it out",
            )
        return
    for key in ("from", "to"):
        if key not in days:
            yield Problem(f"{place}/{key}", "is missing; a budget with period once needs from and to")
    first, last = days.get("from"), days.get("to")
    if first is not None and last is not None and last <= first:
        yield Problem(f"{place}/to", f"{last} is not after from, {first}; set a later day")


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _sum_problems(document: QueueDocument) -> Iterator[Problem]:
    """Yield problems of guarantees whose sum over the children exceeds that of their parent."""
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
            f"the queues below it are guaranteed {gpus_of(milli)} of pool {pool}, but it has only {gpus_of(has)}; "
            "raise its guarantee, or lower theirs"
        )
        yield Problem(f"/queues/{escaped(path)}/guarantee_gpus", why)
