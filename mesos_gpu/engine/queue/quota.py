"""What the jobs of one user or queue may take of the scheduler itself: places in line, and bytes that it keeps."""

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
    """What somebody asks for beside what he has."""

    pending: int
    size: int  # bytes


def check_job(state: State, settings: Settings, spec: JobSpec, owner: str = "") -> None:
    """Refuse one that is too much. `owner`: the proved name of who submits it; "": there is none.

    Raises:
        TooMuch: Its user's, its queue's or that name's limit is reached.
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
    """How many jobs a request is for: an array's tasks count as one each, be they made or not.

    Raises:
        NotAccepted: An array has more than the operator allows, or names for its tasks that are too long.
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
    """Refuse a change by which one user, or one proved name, wants more instances than may wait at once, or more than
    may be kept: of one app with its instances, or of all definitions. What is there already, or grows less, is no
    reason.

    Raises:
        TooMuch: Of one of these they are too many, or one is too large.
    """
    before, now = {app.id: app for app in old}, tuple(new)
    had, wanted = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for app in before.values():
        had.update(dict.fromkeys(_who_has(app), app.instances))
    for app in now:
        wanted.update(dict.fromkeys(_who_has(app), app.instances))
        if app != before.get(app.id):
            whole = _More(0, app.instances * size_of(app))
            _check(
                settings.queue.user_quota, Use(), whole, f"{app.id} of {_who('user', app.user or '')}", _FEWER
            )
    for (kind, name), instances in wanted.items():
        if instances > had[kind, name]:
            more = _More(instances, 0)
            _check(settings.queue.user_quota, Use(), more, f"apps of {_who(kind, name)}", _FEWER)
    _check_definitions(settings, before, now)


def _check_definitions(settings: Settings, before: Mapping[str, App], now: Sequence[App]) -> None:
    """Also those without instances are kept, and are written with each change of an app. They count for the proved
    name; where there is none, for the user."""
    changed = [app for app in now if app != before.get(app.id)]
    for kind, name in dict.fromkeys(_who_has(app)[-1] for app in changed):
        own = [app for app in changed if _who_has(app)[-1] == (kind, name)]
        had = sum(size_of(before[app.id]) for app in own if app.id in before)
        if sum(map(size_of, own)) > had:
            whole = sum(size_of(app) for app in now if _who_has(app)[-1] == (kind, name))
            who = f"definitions of apps of {_who(kind, name)}"
            _check(settings.queue.user_quota, Use(), _More(0, whole), who, "delete some")


def _who_has(app: App) -> tuple[tuple[str, str], ...]:
    """Whose limits its instances count against, as of `owners`."""
    of_user = (("user", app.user or ""),) if app.user or not app.owner else ()
    return *of_user, *((("name", app.owner),) if app.owner else ())


def size_of(value: JobSpec | App) -> int:
    """Bytes that it takes in the state."""
    return len(msgspec.json.encode(value))


def _check(quota: Quota, use: Use, more: _More, who: str, remedy: str) -> None:
    said = "; or ask the operator for more"
    if quota.pending and use.pending + more.pending > quota.pending:
        what = f"{who}: {use.pending + more.pending} would wait, and {quota.pending} may"
        raise TooMuch(what, remedy=f"{remedy}{said} (--{_option(who)}-pending)")
    if quota.stored_mib and use.size + more.size > quota.stored_mib * MIB:
        mib = (use.size + more.size) / MIB
        what = f"{who}: {mib:.1f} MiB would be kept, and {quota.stored_mib} MiB may"
        raise TooMuch(what, remedy=f"{remedy}, or send less in each{said} (--{_option(who)}-stored)")


def _option(who: str) -> str:
    return "queue" if who.startswith("queue") else "user"


def _who(kind: str, name: str) -> str:
    return f"{kind} {name}" if name else "the default user"
