"""Limits of one user or queue on the scheduler itself: pending jobs, and bytes of stored definitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from mesos_gpu.engine.indexes.memory import Use
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotAccepted, TooMuch
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.arrays.array import MAX_NAME_LENGTH
from mesos_gpu.model.arrays.indexes import parsed
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.quota import Quota, owners

MIB: Final = 1 << 20
_FEWER: Final = "ask for fewer instances"


@dataclass(frozen=True, slots=True)
class _More:
    """Amounts by which a request adds to the use of a user or queue.

    Attributes:
        size: Stored definitions, in bytes.
    """

    pending: int
    size: int


def check_job(state: State, settings: Settings, spec: JobSpec, owner: str = "") -> None:
    """Refuse a job beyond the limits of its user, its queue or its authenticated submitter.

    Args:
        owner: Authenticated name of the submitter; "" without one.

    Raises:
        TooMuch: One of the limits is reached.
    """
    tasks = _tasks_of(settings, spec)
    more = _More(tasks, size_of(spec))
    for kind, name in owners(spec, owner):
        quota = settings.queue.queue_quota if kind == "queue" else settings.queue.user_quota
        _check(
            quota,
            state.quota.uses.get((kind, name), Use()),
            more,
            _who(kind, name),
            "wait until some have ended",
        )


def _tasks_of(settings: Settings, spec: JobSpec) -> int:
    """Return the number of jobs of a request; each task of an array counts as one.

    Raises:
        NotAccepted: The array has more tasks than the operator allows, or the names of its tasks are too long.
    """
    if spec.array is None:
        return 1
    indexes, wrong = parsed(spec.array), list[tuple[str, str]]()
    if indexes.count > settings.queue.max_array:
        wrong.append(("/array", f"has {indexes.count} indexes, and {settings.queue.max_array} are allowed"))
    if len(f"{spec.name}.{indexes.last}") > MAX_NAME_LENGTH:
        why = f"its tasks are called as {spec.name}.{indexes.last}, and {MAX_NAME_LENGTH} characters are allowed"
        wrong.append(("/name", why))
    if wrong:
        raise NotAccepted(wrong, remedy="submit several arrays, or ask the operator for more (--max-array)")
    return indexes.count


def check_apps(settings: Settings, old: Iterable[App], new: Iterable[App]) -> None:
    """Refuse a change of apps beyond the limits of a user or authenticated name.

    Limited are the pending instances, the size of one app with its instances, and the size of all definitions. What
    is there already, or grows less, is not refused.

    Raises:
        TooMuch: One of the limits is reached.
    """
    before, now = {app.id: app for app in old}, tuple(new)
    instances_before, instances_after = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for app in before.values():
        instances_before.update(dict.fromkeys(_who_has(app), app.instances))
    for app in now:
        instances_after.update(dict.fromkeys(_who_has(app), app.instances))
        if app != before.get(app.id):
            whole = _More(0, app.instances * size_of(app))
            _check(
                settings.queue.user_quota, Use(), whole, f"{app.id} of {_who('user', app.user or '')}", _FEWER
            )
    for (kind, name), instances in instances_after.items():
        if instances > instances_before[kind, name]:
            more = _More(instances, 0)
            _check(settings.queue.user_quota, Use(), more, f"apps of {_who(kind, name)}", _FEWER)
    _check_definitions(settings, before, now)


def _check_definitions(settings: Settings, before: Mapping[str, App], now: Sequence[App]) -> None:
    """Check the size of all app definitions of a name, also of apps without instances.

    All are stored and written with each change of an app. They count for the authenticated name; without one, for the
    user.
    """
    changed = [app for app in now if app != before.get(app.id)]
    for kind, name in dict.fromkeys(_who_has(app)[-1] for app in changed):
        own = [app for app in changed if _who_has(app)[-1] == (kind, name)]
        had = sum(size_of(before[app.id]) for app in own if app.id in before)
        if sum(map(size_of, own)) > had:
            whole = sum(size_of(app) for app in now if _who_has(app)[-1] == (kind, name))
            who = f"definitions of apps of {_who(kind, name)}"
            _check(settings.queue.user_quota, Use(), _More(0, whole), who, "delete some")


def _who_has(app: App) -> tuple[tuple[str, str], ...]:
    """Return the user and the name whose limits the instances of an app count against, as of `owners`."""
    of_user = (("user", app.user or ""),) if app.user or not app.owner else ()
    return *of_user, *((("name", app.owner),) if app.owner else ())


def size_of(value: JobSpec | App) -> int:
    """Return the bytes that a value takes in the state."""
    return len(msgspec.json.encode(value))


def _check(quota: Quota, use: Use, more: _More, who: str, remedy: str) -> None:
    """Refuse `more` beside the present use if it exceeds a limit.

    Raises:
        TooMuch: With the option by which the operator can raise the limit.
    """
    ask_operator = "; or ask the operator for more"
    if quota.pending and use.pending + more.pending > quota.pending:
        what = f"{who}: {use.pending + more.pending} jobs would be pending, and {quota.pending} are allowed"
        raise TooMuch(what, remedy=f"{remedy}{ask_operator} (--{_option(who)}-pending)")
    if quota.stored_mib and use.size + more.size > quota.stored_mib * MIB:
        mib = (use.size + more.size) / MIB
        what = f"{who}: {mib:.1f} MiB would be stored, and {quota.stored_mib} MiB are allowed"
        raise TooMuch(what, remedy=f"{remedy}, or send less in each{ask_operator} (--{_option(who)}-stored)")


def _option(who: str) -> str:
    """Return the part of the option names that raise the limit of a user or queue."""
    return "queue" if who.startswith("queue") else "user"


def _who(kind: str, name: str) -> str:
    """Return the user, name or queue for messages."""
    return f"{kind} {name}" if name else "the default user"
