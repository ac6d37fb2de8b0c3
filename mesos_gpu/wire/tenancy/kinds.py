"""JSON of queue figures, by the kinds with which they are declared; pure functions."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar

from mesos_gpu.model import tenancy
from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.fields import Constraints, Field, Kind, Whole
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tenancy import (
    BUDGET_FIELDS,
    DEFAULT_POOL,
    HOURS_FIELDS,
    HOURS_FIGURES,
    IDLE_FIELDS,
    LIMIT_FIELDS,
    MAX_GPUS,
    Budget,
    Guarantee,
    Hours,
    Idle,
    Limits,
    MinRuntime,
    Shape,
)
from mesos_gpu.wire.checking import MAX_NAME, Check, escaped, is_number, is_text, show
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS, constraint_of
from mesos_gpu.wire.kinds import PLAIN_READERS, PLAIN_WRITERS, Reader, Writer, read_fields, write_fields

T = TypeVar("T")
MAX_SHAPES: Final = 100  # shapes of one guarantee
MAX_NODES: Final = 100_000
MAX_GPUS_OF_NODE: Final = 1024
MAX_USERS: Final = 10_000  # users in one object
MAX_NAMES: Final = 1000  # names in one list
MAX_HOURS: Final = 1e9
MAX_HOURS_OF_WEEK: Final = 50  # hours of one queue
MILLI_S: Final = 3600 * 1000  # one hour of a GPU of cost 1, in thousandths of cost times seconds
SHAPE_KNOWN: Final = ("nodes", "gpus")
RUNTIME_KNOWN: Final = ("reclaim", "rebalance")
_FIGURE: Final = f"a number of GPUs from 0 to {MAX_GPUS} with at most three decimals"
_SHAPES: Final = f"a list of at most {MAX_SHAPES} shapes, as [{{nodes: 2, gpus: 8}}]"


# --- reading


def _per_pool(check: Check, field: Field) -> dict[str, int]:
    return _by_pool(check, field.key, _milli, _FIGURE)


def _guarantees(check: Check, field: Field) -> dict[str, Guarantee]:
    return _by_pool(check, field.key, _guarantee, f"{_FIGURE}; or {_SHAPES}")


def _by_pool(
    check: Check, key: str, figure: Callable[[Check, str, Any], T | None], form: str
) -> dict[str, T]:
    """Return a figure by pool; a single figure is for the default pool."""
    given = check.given[key]
    if not isinstance(given, dict):
        given = {DEFAULT_POOL: given}
        places = {DEFAULT_POOL: key}
    elif not given:
        check.problem(key, f"must be {form}, or an object of such values by pool, got {{}}")
    else:
        places = {str(pool): f"{key}/{escaped(pool)}" for pool in given}
    figures = {str(pool): figure(check, places[str(pool)], value) for pool, value in given.items()}
    return {pool: value for pool, value in sorted(figures.items()) if value is not None}


def _milli(check: Check, place: str, value: float) -> int | None:
    if is_number(value) and 0 <= value <= MAX_GPUS and round(value * 1000) == value * 1000:
        return round(value * 1000)
    check.problem(place, f"must be {_FIGURE}, got {show(value)}")
    return None


def _guarantee(check: Check, place: str, value: Any) -> Guarantee | None:
    if not isinstance(value, list):
        milli = _milli(check, place, value)
        return None if milli is None else Guarantee(milli)
    if not 0 < len(value) <= MAX_SHAPES:
        check.problem(place, f"must be {_FIGURE}; or {_SHAPES}, got {show(value)}")
        return None
    shapes = tuple(_shape(check, f"{place}/{index}", item) for index, item in enumerate(value))
    return Guarantee(sum(shape.nodes * shape.gpus for shape in shapes) * 1000, shapes)


def _shape(outer: Check, place: str, value: Any) -> Shape:
    if not isinstance(value, dict):
        outer.problem(place, f"must be an object of nodes and gpus, got {show(value)}")
        return Shape(1, 1)
    check = Check(value, SHAPE_KNOWN)
    for key in SHAPE_KNOWN:
        if check.given.get(key) is None:
            check.problem(key, "is missing; a shape has nodes, and gpus per node")
    shape = Shape(check.integer("nodes", 1, (1, MAX_NODES)), check.integer("gpus", 1, (1, MAX_GPUS_OF_NODE)))
    outer.take(place, check)
    return shape


def _runtimes(outer: Check, field: Field) -> MinRuntime:
    """Parse minimum run times."""
    given = outer.given[field.key]
    if not isinstance(given, dict):
        outer.problem(field.key, f"must be an object of reclaim and rebalance, in seconds, got {show(given)}")
        return MinRuntime()
    check = Check(given, RUNTIME_KNOWN)

    def seconds(key: str, default: float) -> float:
        form = f"a number of seconds from 0 to {tenancy.MAX_S:g}"
        return check.number(key, default, lambda n: 0 <= n <= tenancy.MAX_S, form)

    least = MinRuntime()
    runtimes = MinRuntime(seconds("reclaim", least.reclaim_s), seconds("rebalance", least.rebalance_s))
    outer.take(field.key, check)
    return runtimes


def by_user(check: Check, key: str, of_one: Callable[[Check, str, Any], T | None]) -> dict[str, T]:
    """Return values by user name; "*" is for each user that is not named."""
    given = check.given[key]
    if not isinstance(given, dict) or len(given) > MAX_USERS:
        check.problem(key, f"must be an object of at most {MAX_USERS} users, got {show(given)}")
        return {}
    values = {}
    for name, value in given.items():
        place = f"{key}/{escaped(name)}"
        if not is_text(name) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            check.problem(place, 'must have the name of a user, or "*" for all others, as its key')
        elif (item := of_one(check, place, value)) is not None:
            values[name] = item
    return values


def _weight(check: Check, place: str, value: Any) -> int | None:
    kind = Whole(0, 1_000_000)
    if is_number(value) and value == int(value) and kind.holds(value):
        return int(value)
    check.problem(place, f"must be {kind.words}, got {show(value)}")
    return None


def object_at(outer: Check, place: str, value: Any, fields: tuple[Field, ...]) -> Check | None:
    """Return a check of an object with declared fields; None if it is no object, which is reported."""
    if isinstance(value, dict):
        return Check(value, [field.key for field in fields])
    outer.problem(place, f"must be an object of {', '.join(each.key for each in fields)}, got {show(value)}")
    return None


def limits_at(outer: Check, place: str, value: Any) -> Limits | None:
    """Parse the limits of a user."""
    check = object_at(outer, place, value, LIMIT_FIELDS)
    if check is None:
        return None
    limits = Limits(**read_fields(check, LIMIT_FIELDS, READERS))
    outer.take(place, check)
    return limits


def _budget_at(outer: Check, place: str, value: Any) -> Budget | None:
    check = object_at(outer, place, value, BUDGET_FIELDS)
    if check is None:
        return None
    if "gpu_hours" not in check.given:
        check.problem("gpu_hours", "is missing; set the hours of GPUs of cost 1")
    values = read_fields(check, BUDGET_FIELDS, READERS)
    budget = Budget(**{**values, "milli_s": values["milli_s"] or 0})
    outer.take(place, check)
    return budget


def _hours_of_week(check: Check, field: Field) -> tuple[Hours, ...]:
    got = check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_HOURS_OF_WEEK:
        form = (
            f"a list of at most {MAX_HOURS_OF_WEEK} objects, as [{{from: '22:00', to: '06:00', weight: 3}}]"
        )
        check.problem(field.key, f"must be {form}, got {show(got)}")
        return ()
    hours = [_hours_at(check, f"{field.key}/{index}", item) for index, item in enumerate(got)]
    return tuple(item for item in hours if item is not None)


def _hours_at(outer: Check, place: str, value: Any) -> Hours | None:
    """Parse hours of the week at a place; None, after a report, for a value that is no object."""
    check = object_at(outer, place, value, HOURS_FIELDS)
    if check is None:
        return None
    for key in ("from", "to"):
        if key not in check.given:
            check.problem(key, "is missing; hours need from and to, as '22:00' and '06:00'")
    values = read_fields(check, HOURS_FIELDS, READERS)
    hours = Hours(**{**values, "begins": values["begins"] or "00:00", "ends": values["ends"] or "24:00"})
    if not hours.days and "days" not in check.failed:
        check.problem("days", "must have at least one day; leave it out for every day")
    if f"{hours.begins}:00"[:8] == f"{hours.ends}:00"[:8]:
        check.problem("to", f"must differ from from, {hours.begins}; for a whole day set 00:00 and 24:00")
    if not check.problems and all(getattr(hours, name) in (None, {}) for name in HOURS_FIGURES):
        names = ", ".join(HOURS_FIGURES)
        check.problem("", f"changes no figure, got {show(value)}; set one of {names}, or leave it out")
    outer.take(place, check)
    return hours


def _idle(outer: Check, field: Field) -> Idle | None:
    check = object_at(outer, field.key, outer.given[field.key], IDLE_FIELDS)
    if check is None:
        return None
    idle = Idle(**read_fields(check, IDLE_FIELDS, READERS))
    outer.take(field.key, check)
    return idle


def _gpu_hours(check: Check, field: Field) -> int:
    got = check.given[field.key]
    if not is_number(got) or not 0 <= got <= MAX_HOURS:
        check.problem(field.key, f"must be a number of hours from 0 to {MAX_HOURS:g}, got {show(got)}")
        return 0
    return round(float(got) * MILLI_S)


def _percents(check: Check, field: Field) -> tuple[int, ...]:
    got = check.given[field.key]
    whole = isinstance(got, list) and all(is_number(percent) and percent == int(percent) for percent in got)
    if not whole or len(got) > 20 or not all(0 < percent <= 1000 for percent in got):
        check.problem(
            field.key, f"must be a list of at most 20 whole percents from 1 to 1000, got {show(got)}"
        )
        return ()
    if any(later <= earlier for earlier, later in pairwise(got)):
        check.problem(field.key, f"must be in rising order, as [50, 80, 100], got {show(got)}")
    return tuple(int(each) for each in got)


def _names(check: Check, field: Field) -> tuple[str, ...]:
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, tenancy.Names)
    if not isinstance(got, list) or len(got) > MAX_NAMES:
        check.problem(field.key, f"must be a list of at most {MAX_NAMES} names, got {show(got)}")
        return ()
    for index, item in enumerate(got):
        if not isinstance(item, str) or not kind.pattern.fullmatch(item):
            check.problem(f"{field.key}/{index}", f"must be {kind.form}, got {show(item)}")
        elif item in got[:index]:
            check.problem(f"{field.key}/{index}", f"appears twice: {show(item)}; remove one")
    return tuple(item for item in got if isinstance(item, str))


def _constraints(check: Check, field: Field) -> tuple[Constraint, ...]:
    """Parse constraints that a node fulfils independently of jobs."""
    got = check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_CONSTRAINTS:
        form = f"a list of at most {MAX_CONSTRAINTS} constraints"
        check.problem(field.key, f'must be {form}, as [["rack", "LIKE", "r[12]"]], got {show(got)}')
        return ()
    constraints = []
    for index, item in enumerate(got):
        constraint = constraint_of(item)
        if isinstance(constraint, str):
            check.problem(f"{field.key}/{index}", f"{constraint}; got {show(item)}")
        elif constraint.compares:
            why = (
                f"{show(item)} compares jobs; a pool can have only IS, LIKE, UNLIKE, and CLUSTER with a value"
            )
            check.problem(f"{field.key}/{index}", why)
        else:
            constraints.append(constraint)
    return tuple(constraints)


READERS: Final[Mapping[type[Kind], Reader]] = {
    **PLAIN_READERS,
    tenancy.PerPool: _per_pool,
    tenancy.Guarantees: _guarantees,
    tenancy.Runtimes: _runtimes,
    tenancy.Weights: lambda check, field: by_user(check, field.key, _weight),
    tenancy.LimitsByUser: lambda check, field: by_user(check, field.key, limits_at),
    tenancy.Budgets: lambda check, field: _budget_at(check, field.key, check.given[field.key]),
    tenancy.BudgetsByUser: lambda check, field: by_user(check, field.key, _budget_at),
    tenancy.IdleRules: _idle,
    tenancy.GpuHours: _gpu_hours,
    tenancy.Percents: _percents,
    tenancy.Names: _names,
    tenancy.HoursOfWeek: _hours_of_week,
    Constraints: _constraints,
}


# --- writing


def gpus_of(milli: int) -> int | float:
    """Return thousandths of cost as a number of GPUs of cost 1."""
    return number_of(milli)


def _by_pool_or_alone(figures: Mapping[str, Any]) -> Any:
    """Return figures in their shortest form: a single one of the default pool by itself; null if there are none."""
    if not figures:
        return None
    return figures[DEFAULT_POOL] if [*figures] == [DEFAULT_POOL] else dict(figures)


def _written_guarantee(owed: Guarantee) -> Any:
    if not owed.shapes:
        return gpus_of(owed.milli)
    return [{"nodes": shape.nodes, "gpus": shape.gpus} for shape in owed.shapes]


def written_limits(limits: Limits) -> dict[str, Any]:
    """Return limits as JSON."""
    return write_fields(limits, LIMIT_FIELDS, WRITERS)


def _written_budget(budget: Budget) -> dict[str, Any]:
    written = write_fields(budget, BUDGET_FIELDS, WRITERS)
    for key in ("from", "to"):
        written[key] = written[key] or None
    return written


def _hours(milli_s: int) -> int | float:
    return milli_s // MILLI_S if milli_s % MILLI_S == 0 else milli_s / MILLI_S


WRITERS: Final[Mapping[type[Kind], Writer | None]] = {
    **PLAIN_WRITERS,
    tenancy.PerPool: lambda by: _by_pool_or_alone({pool: gpus_of(milli) for pool, milli in by.items()}),
    tenancy.Guarantees: lambda by: _by_pool_or_alone(
        {pool: _written_guarantee(owed) for pool, owed in by.items()}
    ),
    tenancy.Runtimes: lambda times: {"reclaim": times.reclaim_s, "rebalance": times.rebalance_s},
    tenancy.Weights: dict,
    tenancy.LimitsByUser: lambda by: {name: written_limits(each) for name, each in by.items()},
    tenancy.Budgets: _written_budget,
    tenancy.BudgetsByUser: lambda by: {name: _written_budget(each) for name, each in by.items()},
    tenancy.IdleRules: lambda rules: write_fields(rules, IDLE_FIELDS, WRITERS),
    tenancy.GpuHours: _hours,
    tenancy.Percents: list,
    tenancy.Names: list,
    tenancy.HoursOfWeek: lambda hours: [write_fields(span, HOURS_FIELDS, WRITERS) for span in hours],
    Constraints: lambda constraints: [constraint.as_list() for constraint in constraints],
}
