"""Persistent volumes: directories of one node that outlive the tasks that use them."""

import re
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId

VOLUME_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
MAX_NAMED: Final = 1000  # named volumes of one owner


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A persistent volume in the scheduler's state.

    It belongs to an app, whose instances have one each, or to the owner of jobs, which use it by its name.

    Attributes:
        id: UUID, which is the name of its directory on the node.
        name: Name that jobs use; of an app's volume its path in the sandbox.
        size_mib: Most that it may hold.
        app: Id of the app whose instance it belongs to; "" for a named volume.
        job_id: Id of the job that used it last; the job of an app's volume is kept as long as the volume.
        hostname: Host name of the node that has it; "" before the first launch.
        is_made: Whether a task has run with it, so that its directory must be there.
        unwanted: Whether its directory is to be removed.
        owner: User or proved name that a named volume belongs to; "" for the default user.
        user: Unix user of the jobs that use a named volume; "" for the default user.
        made_at: Time at which a named volume was asked for first, in seconds since the epoch.
        used_at: Time of the latest launch of a job that uses a named volume; 0 before the first launch.
    """

    id: str
    name: str
    size_mib: int
    app: str
    job_id: JobId
    hostname: str = ""
    is_made: bool = False
    unwanted: bool = False
    owner: str = ""
    user: str = ""
    made_at: float = 0.0
    used_at: float = 0.0

    @property
    def is_named(self) -> bool:
        """Whether jobs use it by its name."""
        return not self.app
