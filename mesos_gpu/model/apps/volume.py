"""Persistent volume: a directory of one node that outlives the tasks that use it."""

from dataclasses import dataclass

from mesos_gpu.model.ids import JobId


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """Persistent volume, as the scheduler keeps it.

    Attributes:
        id: UUID, which is the name of its directory on the node.
        name: Path in the sandbox of the tasks that use it.
        size_mib: Most that it may hold.
        app: Id of the app whose instance it belongs to.
        job_id: Job that used it last, which is remembered as long as the volume.
        hostname: Host name of the node that has it; "" before the first launch.
        is_made: Whether a task has run with it, so that its directory must be there.
        unwanted: Whether its directory is to be removed.
    """

    id: str
    name: str
    size_mib: int
    app: str
    job_id: JobId
    hostname: str = ""
    is_made: bool = False
    unwanted: bool = False
