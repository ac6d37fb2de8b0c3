"""Persistent volumes: which jobs use them, on which node they are, and their removal."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from mesos_gpu.engine.effects import AskRemoval
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.named_volumes import named_in_use
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.mount import Mount, persistent_of
from mesos_gpu.model.nodes.gpu import MAX_REMOVALS
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.policy.apps.task_ids import next_job_id

_SEED: Final = "{job}?volume={name}"


def volumes_of(state: State, spec: JobSpec) -> Iterator[PersistentVolume]:
    """Yield the persistent volumes that a job uses."""
    for mount in persistent_of(spec.mounts):
        if (volume := state.work.volumes.get(mount.source)) is not None:
            yield volume


def idle_volumes(state: State, app_id: str, spec: JobSpec) -> Sequence[PersistentVolume]:
    """Return the volumes of an ended instance, for a new instance; empty if no ended instance has fitting volumes.

    Args:
        state: State of the engine.
        app_id: App of the instances.
        spec: Request of a new instance.
    """
    needed = {(mount.target, mount.volume_mib) for mount in persistent_of(spec.mounts)}
    idle: dict[JobId, list[PersistentVolume]] = {}
    for volume in state.work.volumes.values():
        if volume.app == app_id and not volume.unwanted and not _has_live_job(state, volume):
            idle.setdefault(volume.job_id, []).append(volume)
    fitting = [
        volumes
        for volumes in idle.values()
        if {(volume.name, volume.size_mib) for volume in volumes} == needed
    ]
    return min(fitting, key=lambda each: (not each[0].hostname, each[0].job_id), default=())


def successor_of(state: State, volumes: Sequence[PersistentVolume]) -> JobId | None:
    """Return the id of the job that goes on with the volumes of an ended instance; None without volumes."""
    if not volumes:
        return None
    job = state.work.jobs[volumes[0].job_id]
    return next_job_id(job.id, job.launches)


def attach(
    turn: Turn, app_id: str, spec: JobSpec, job_id: JobId, idle: Sequence[PersistentVolume]
) -> JobSpec:
    """Give a new instance its persistent volumes, and return its request, which names them.

    Args:
        turn: Turn of the engine.
        app_id: App of the instance.
        spec: Request of the instance.
        job_id: Id of its job.
        idle: Volumes that it takes over; empty for new ones.
    """
    idle_by_name = {volume.name: volume for volume in idle}

    def attached(mount: Mount) -> Mount:
        """Return a mount with the id of its volume, which now belongs to the new job."""
        name = mount.target
        if not mount.volume_mib:
            return mount
        id = str(uuid5(NAMESPACE_URL, _SEED.format(job=job_id, name=name)))
        new = PersistentVolume(id, name, mount.volume_mib, app_id, job_id)
        volume = replace(idle_by_name.get(name, new), job_id=job_id)
        turn.put(volume)
        return replace(mount, source=volume.id)

    return replace(spec, mounts=tuple(map(attached, spec.mounts)))


def bind(turn: Turn, job: Job, hostname: str) -> JobSpec:
    """Bind the volumes of a job to the node where it is launched, and return the request that its executor gets."""
    existing = set[str]()
    for volume in [*volumes_of(turn.state, job.spec)]:
        if volume.is_named:
            turn.put(replace(volume, hostname=hostname, job_id=job.id, used_at=turn.now))
        elif volume.hostname != hostname:
            turn.put(replace(volume, hostname=hostname))
        existing |= {volume.id} if volume.is_made else set()
    if not existing:
        return job.spec
    mounts = [replace(mount, is_made=mount.source in existing) for mount in job.spec.mounts]
    return replace(job.spec, mounts=tuple(mounts))


def on_running(turn: Turn, job: Job) -> None:
    """Note that the directories of a job's volumes are there, as a task runs with them."""
    for volume in [*volumes_of(turn.state, job.spec)]:
        if not volume.is_made:
            turn.put(replace(volume, is_made=True))


def wipe(turn: Turn, job_id: JobId) -> None:
    """Have the volumes that a job used last removed after its end, so that no other instance takes them over."""
    for volume in [*turn.state.work.volumes.values()]:
        if volume.job_id == job_id and not (volume.is_named or volume.unwanted):
            turn.put(replace(volume, unwanted=True))


def give_up(turn: Turn, app_ids: Set[str]) -> None:
    """Remove the volumes that are left of deleted apps: an app that is created with such an id is another one."""
    for volume in [*turn.state.work.volumes.values()]:
        if volume.app in app_ids and not volume.unwanted:
            turn.put(replace(volume, unwanted=True))


def resting_volumes(state: State, app_id: str) -> Mapping[JobId, Sequence[PersistentVolume]]:
    """Return the volumes of an app's instances that have no live task, by the job that used them last."""
    resting: dict[JobId, list[PersistentVolume]] = {}
    for volume in state.work.volumes.values():
        if volume.app == app_id and not volume.unwanted and not state.work.live_of(volume.job_id):
            resting.setdefault(volume.job_id, []).append(volume)
    return resting


def on_tick(turn: Turn) -> None:
    """Have the volumes of apps that are gone removed, and forget volumes that no node has and no job uses."""
    state = turn.state
    if not state.work.volumes:
        return
    _forget_unused(turn)
    wanted_volumes = _wanted(state)
    for volume in [*state.work.volumes.values()]:
        if volume.is_named or _has_live_job(state, volume):
            continue
        is_wanted = (volume.app, volume.name, volume.size_mib) in wanted_volumes and not volume.unwanted
        if not is_wanted and not volume.hostname:
            turn.drop(PersistentVolume, volume.id)
        elif not is_wanted and not volume.unwanted:
            turn.put(replace(volume, unwanted=True))


def _forget_unused(turn: Turn) -> None:
    """Forget the named volumes that no job was launched with and that no job uses any more."""
    unused = [
        volume for volume in turn.state.work.volumes.values() if volume.is_named and not volume.hostname
    ]
    in_use = named_in_use(turn.state) if unused else ()
    for volume in unused:
        if volume.id not in in_use:
            turn.drop(PersistentVolume, volume.id)


def _wanted(state: State) -> set[tuple[str, str, int]]:
    """Return app, path and size of each volume that an app has, or will have again if its deployment is undone."""
    named = {volume.app for volume in state.work.volumes.values() if not volume.is_named}
    roots = [
        state.apps.catalog.root,
        *(deployment.plan.original for deployment in state.apps.deployments.values()),
    ]
    apps = [app for root in roots for app in root.all_apps() if app.id in named]
    return {
        (app.id, volume.container_path, volume.persistent.size_mib)
        for app in apps
        for volume in app.persistent_volumes
        if volume.persistent is not None
    }


def on_reported(turn: Turn, node: Node) -> None:
    """Forget the volumes that a node has removed, and ask it to remove those that are left."""
    state, report = turn.state, node.inventory.volumes if node.inventory is not None else None
    if report is None or not state.work.volumes:
        return
    unwanted = [
        volume
        for volume in state.work.volumes.values()
        if volume.unwanted and volume.hostname == node.hostname
    ]
    in_use = named_in_use(state) if any(volume.is_named for volume in unwanted) else set()
    left = list[str]()
    for volume in unwanted:
        if volume.id in report.removed:
            turn.drop(PersistentVolume, volume.id)
        elif volume.is_named:
            left += [volume.id] if volume.id not in in_use else []
        elif not _has_live_job(state, volume) and not state.work.live_of(volume.job_id):
            left.append(volume.id)
    monitor = state.work.tasks.get(node.monitor) if node.monitor else None
    if left and monitor is not None and state.mesos.connected:
        turn.effects.append(AskRemoval(node.id, monitor.executor_id, tuple(left[:MAX_REMOVALS])))


def _has_live_job(state: State, volume: PersistentVolume) -> bool:
    """Return whether the job that used a volume last has not ended."""
    return not state.work.jobs[volume.job_id].state.ended
