"""History of apps and of the tree of groups."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from mesos_gpu.engine.queue.quota import size_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, RootVersion
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.apps.rollout.history import apps_of, group_versions, made_after, shape_of

MAX_VERSIONS: Final = 50  # versions of an app, as of Marathon's --zk_max_versions
MAX_VERSION_BYTES: Final = 1 << 20  # size of all versions of an app but the latest
MAX_ROOTS: Final = 25  # versions of the tree of groups


def moment(turn: Turn) -> float:
    """Return the time of a change of apps.

    It is now, or later by the milliseconds by which Marathon's interface tells versions apart.
    """
    state = turn.state
    before = [info.version for info in state.apps.catalog.versions.values()]
    before += [deployment.version for deployment in state.apps.deployments.values()]
    before += [root.version for root in state.apps.roots]
    last = round(max(before, default=0.0), 3)
    return turn.now if round(turn.now, 3) > last else last + 0.001


def remember(turn: Turn, target: Group, versions: dict[str, VersionInfo], at: float) -> None:
    """Save a changed tree of groups as the wanted one, and forget versions that are too old."""
    state, before = turn.state, turn.state.apps.catalog
    old = before.versions
    changed = {id for id in old.keys() | versions.keys() if old.get(id) != versions.get(id)}
    groups = group_versions(before.root, target, changed, before.group_versions, at)
    turn.put(AppCatalog(target, versions, groups))
    turn.put(RootVersion(at, shape_of(target, versions)))
    for forgotten in state.apps.roots[:-MAX_ROOTS]:
        _forget_versions_before(turn, forgotten)
        turn.drop(RootVersion, forgotten.version)
    for app in target.all_apps():
        if versions[app.id] != old.get(app.id):
            turn.put(AppVersion(versions[app.id].version, app))
            if old_ones := _old_versions(state.apps.app_versions[app.id]):
                _forget_old_versions(turn, app.id, old_ones)


def versions_of(state: State, app_id: str) -> Sequence[AppVersion]:
    """Return the versions of an app since it was made, oldest first: not those of one of its id before."""
    after = made_after(state.apps.roots, app_id)
    return [version for version in state.apps.app_versions.get(app_id, ()) if version.version > after]


def _forget_versions_before(turn: Turn, root: RootVersion) -> None:
    """Forget versions of apps that are not in the oldest tree, as no later one tells when the present app was made."""
    state = turn.state
    for app_id in state.apps.app_versions.keys() - {id for id, _ in apps_of(root.root)}:
        if made_after(state.apps.roots, app_id) == root.version:
            old = [version for version in state.apps.app_versions[app_id] if version.version <= root.version]
            _forget_old_versions(turn, app_id, old)


def _old_versions(known: Sequence[AppVersion]) -> Sequence[AppVersion]:
    """Return the versions of an app that are too many, or too large together."""
    *before, _ = known[-MAX_VERSIONS:]
    sizes = accumulate(size_of(version.app) for version in reversed(before))
    kept = 1 + sum(size <= MAX_VERSION_BYTES for size in sizes)
    return known[:-kept]


def _forget_old_versions(turn: Turn, app_id: str, old: Sequence[AppVersion]) -> None:
    """Forget versions of an app unless they are in use."""
    used = _used(turn)
    for version in old:
        if (app_id, version.version) not in used:
            turn.drop(AppVersion, app_id, version.version)


def forget_gone(turn: Turn) -> None:
    """Forget the versions of apps that are deleted, have no instances, and are in no saved tree of groups."""
    state = turn.state
    kept = {app.id for app in state.apps.catalog.root.all_apps()} | state.apps.instances.keys()
    for deployment in state.apps.deployments.values():
        kept |= deployment.plan.affected
    deleted_ids = sorted(state.apps.app_versions.keys() - kept)
    used = _used(turn) if deleted_ids else set()
    for app_id in deleted_ids:
        for version in state.apps.app_versions[app_id]:
            if (app_id, version.version) not in used:
                turn.drop(AppVersion, app_id, version.version)
    for index in (state.apps.places, state.apps.vacant):
        for app_id in index.keys() - kept:
            del index[app_id]
    current = {(job.app_id, job.app_version) for job in _instances(state)}
    current |= {(id, info.last_config_change_at) for id, info in state.apps.catalog.versions.items()}
    for key in state.apps.backoffs.keys() - current:
        del state.apps.backoffs[key]


def _used(turn: Turn) -> set[tuple[str, float | None]]:
    """Return the versions of apps that run or are in saved trees of groups."""
    state = turn.state
    running: set[tuple[str, float | None]] = {(job.app_id, job.app_version) for job in _instances(state)}
    return running.union(*(apps_of(root.root) for root in state.apps.roots))


def _instances(state: State) -> Iterator[Job]:
    """Yield all instances of apps that have not ended."""
    return (state.work.jobs[job_id] for ids in state.apps.instances.values() for job_id in ids)
