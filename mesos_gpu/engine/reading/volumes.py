"""Readers of the named volumes of jobs."""

from collections.abc import Iterator, Sequence

from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.tasks import named_volumes as volumes
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.volume import PersistentVolume


def named_volumes(view: View) -> Iterator[tuple[PersistentVolume, Sequence[JobId]]]:
    """Yield the named volumes by owner and name, each with the jobs and arrays that have not ended and use it."""
    users = volumes.users_of_volumes(view.state)
    for volume in sorted(
        volumes.named_volumes(view.state), key=lambda each: (each.owner, each.name, each.id)
    ):
        yield volume, users.get(volume.id, ())


def limit_of_volumes_mib(view: View) -> int:
    """Return the most that the named volumes of one owner may hold in all, in MiB; 0 for any size."""
    return view.settings.queue.user_volumes_mib
