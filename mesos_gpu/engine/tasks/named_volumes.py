"""Named volumes of jobs: created by the first job that names them, and removed by their owner."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from mesos_gpu.engine.events import VolumeRemoved
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotAccepted, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.mount import Mount, named_of
from mesos_gpu.model.tasks.volume import MAX_NAMED, PersistentVolume
from mesos_gpu.model.words import counted

_SEED: Final = "{job}?named-volume={name}"
_REMEDY: Final = (
    "list the volumes and their sizes: mesos-gpu storage list; remove one: mesos-gpu storage remove NAME; or ask the "
    "operator for more (--user-volumes)"
)
_MAX_SHOWN: Final = 5  # jobs in an error message


def named_volumes(state: State) -> Iterator[PersistentVolume]:
    """Yield all named volumes, also those that are to be removed."""
    return (volume for volume in state.work.volumes.values() if volume.is_named)


def volumes_by_name(state: State, owner: str) -> Mapping[str, PersistentVolume]:
    """Return the volumes of an owner by their names, without those that are to be removed."""
    own = (volume for volume in named_volumes(state) if volume.owner == owner and not volume.unwanted)
    return {volume.name: volume for volume in own}


def users_of_volumes(state: State) -> Mapping[str, Sequence[JobId]]:
    """Return the jobs and arrays that have not ended and use named volumes, by the id of the volume."""
    users: dict[str, dict[JobId, None]] = {}
    if any(named_volumes(state)):
        for array in state.work.arrays.values():
            for _, mount in named_of(array.spec.mounts) if array.ended_at is None else ():
                users.setdefault(mount.source, {})[array.id] = None
        for job in _jobs(state):
            for _, mount in named_of(job.spec.mounts) if not job.state.ended else ():
                users.setdefault(mount.source, {})[job.array or job.id] = None
    return {volume: [*jobs] for volume, jobs in users.items()}


def named_in_use(state: State) -> Set[str]:
    """Return the ids of named volumes that a job that has not ended, or a live task, uses."""
    in_use = {*users_of_volumes(state)}
    if any(named_volumes(state)):
        in_use |= {mount.source for job in _jobs(state) for _, mount in named_of(job.spec.mounts)}
    return in_use


def _jobs(state: State) -> Iterator[Job]:
    """Yield the jobs that wait, and those of live tasks, which may have ended."""
    for _, job_id in state.work.queue:
        yield state.work.jobs[job_id]
    for task_id in state.work.live:
        if (job := state.work.job_of(state.work.tasks[task_id])) is not None:
            yield job


def claim(turn: Turn, job_id: JobId, spec: JobSpec, owner: str) -> JobSpec:
    """Create the records of new volumes that a job or array names; return its request with the ids of all volumes.

    Args:
        job_id: Id of the new job or array.
        spec: Request of the job.
        owner: User or authenticated name that is charged for the job; "" for the default user.

    Raises:
        NotAccepted: A volume cannot be used as the job names it; all reasons at once.
    """
    named_mounts = named_of(spec.mounts)
    if not named_mounts:
        return spec
    own_volumes = volumes_by_name(turn.state, owner)
    faults = [*_faults(own_volumes, named_mounts, spec, owner)]
    if faults:
        raise NotAccepted(faults, remedy="list the volumes: mesos-gpu storage list")
    new = {
        mount.volume: PersistentVolume(
            id=str(uuid5(NAMESPACE_URL, _SEED.format(job=job_id, name=mount.volume))),
            name=mount.volume,
            size_mib=mount.volume_mib,
            app="",
            job_id=job_id,
            owner=owner,
            user=spec.user or "",
            made_at=turn.now,
        )
        for _, mount in named_mounts
        if mount.volume not in own_volumes
    }
    _check_limits(turn.settings, own_volumes, named_mounts, owner)
    for volume in new.values():
        turn.put(volume)
    volumes = {**own_volumes, **new}

    def claimed(mount: Mount) -> Mount:
        """Return a mount with the id and size of its volume."""
        if not mount.volume:
            return mount
        volume = volumes[mount.volume]
        return replace(mount, source=volume.id, volume_mib=volume.size_mib)

    return replace(spec, mounts=tuple(map(claimed, spec.mounts)))


def _faults(
    known: Mapping[str, PersistentVolume], asked: Sequence[tuple[int, Mount]], spec: JobSpec, owner: str
) -> Iterator[tuple[str, str]]:
    """Yield the reasons why named volumes cannot be used, each with the JSON pointer of its field."""
    for index, mount in asked:
        volume, mib = known.get(mount.volume), mount.volume_mib
        if volume is None:
            if not mib:
                why = f"is needed: {_who(owner)} has no volume {mount.volume} yet"
                yield f"/volumes/{index}/size", why
            continue
        if mib not in (0, volume.size_mib):
            why = f"is {mib} MiB, and the volume {volume.name} has {volume.size_mib} MiB: leave size out"
            yield f"/volumes/{index}/size", why
        if volume.user != (spec.user or ""):
            why = (
                f"is {spec.user or 'the default user'}, and the volume {volume.name} belongs to the Unix user "
                f"{volume.user or 'that jobs have by default'}: name that one, or another volume"
            )
            yield "/user", why


def _check_limits(
    settings: Settings,
    known: Mapping[str, PersistentVolume],
    asked: Sequence[tuple[int, Mount]],
    owner: str,
) -> None:
    """Check that new volumes exceed neither the size nor the number that an owner may have.

    Raises:
        NotAccepted: They exceed one of the limits.
    """
    new = [(index, mount) for index, mount in asked if mount.volume not in known]
    if not new:
        return
    index, used_mib = new[0][0], sum([volume.size_mib for volume in known.values()])
    more_mib, most_mib = sum([mount.volume_mib for _, mount in new]), settings.queue.user_volumes_mib
    if most_mib and used_mib + more_mib > most_mib:
        why = (
            f"asks for {more_mib} MiB of new volumes: {_who(owner)} has {used_mib} MiB in "
            f"{counted(len(known), 'volume')}, and {most_mib} MiB are allowed"
        )
        raise NotAccepted([(f"/volumes/{index}/size", why)], remedy=_REMEDY)
    if len(known) + len(new) > MAX_NAMED:
        why = f"is one volume too many: {_who(owner)} has {len(known)}, and {MAX_NAMED} are allowed"
        raise NotAccepted([(f"/volumes/{index}/name", why)], remedy=_REMEDY)


def _who(owner: str) -> str:
    """Return the owner for messages."""
    return owner or "the default user"


def on_volume_removed(turn: Turn, event: VolumeRemoved) -> None:
    """Have a named volume removed from its node, as its owner asks.

    Raises:
        NotFound: The owner has no such volume.
        Conflict: A job that has not ended uses it.
    """
    volume = volumes_by_name(turn.state, event.owner).get(event.name)
    if volume is None:
        raise NotFound(
            f"{_who(event.owner)} has no volume {event.name}",
            remedy="list the volumes: mesos-gpu storage list",
        )
    if jobs := users_of_volumes(turn.state).get(volume.id):
        shown = ", ".join(jobs[:_MAX_SHOWN]) + (", …" if len(jobs) > _MAX_SHOWN else "")
        raise Conflict(
            f"{counted(len(jobs), 'job')} that {'have' if len(jobs) > 1 else 'has'} not ended "
            f"{'use' if len(jobs) > 1 else 'uses'} the volume {volume.name}: {shown}",
            remedy="wait for their end, or kill them: mesos-gpu kill ID",
        )
    if volume.hostname:
        turn.put(replace(volume, unwanted=True))
    else:
        turn.drop(PersistentVolume, volume.id)
