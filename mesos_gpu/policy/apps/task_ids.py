"""Identifiers of an app's instances and their tasks, as Marathon 1.11 writes them. Pure.

The third launch in one instance of the app `/shop/db` has the task id `shop_db.instance-<uuid>._app.3`. That is also
the engine's form, "<job id>.<launch number>", if the job of an instance is called `shop_db.instance-<uuid>._app`.
"""

import re
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId, TaskId

MAX: Final = 255  # characters of a task id in Mesos: it becomes the name of a directory
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INSTANCE: Final = re.compile(rf"([a-z0-9.-]+(?:_[a-z0-9.-]+)*)\.instance-({_UUID})")
_CONTAINER: Final = "._app"  # Marathon's name for the unnamed container of an app
_LAUNCH: Final = re.compile(r"(.+)\._app\.([1-9][0-9]{0,17})")
_ROOM: Final = len(".instance-") + 36 + len(_CONTAINER) + len(".1000000")
MAX_OF_APP: Final = MAX - _ROOM  # characters of an app's id, without the first slash


@dataclass(frozen=True, slots=True)
class TaskName:
    """Parts of a task id.

    Attributes:
        app: Absolute id of the app.
        uuid: UUID of the instance, in lower case with dashes.
        launch: Number of the launch, from 1.
    """

    app: str
    uuid: str
    launch: int


def instance_id(app: str, uuid: str) -> str:
    """Return the id of an app's instance, "shop_db.instance-<uuid>"; unambiguous, as an app's id has no "_"."""
    return f"{app.strip('/').replace('/', '_')}.instance-{uuid}"


def job_id(app: str, uuid: str) -> JobId:
    """Return the id of an instance's job, such that its tasks are named as Marathon names them."""
    return JobId(instance_id(app, uuid) + _CONTAINER)


def next_job_id(job: JobId, launches: int) -> JobId:
    """Return the id of the instance's next job, after `launches` launches of `job`.

    The id ends in the number of the next job's first task.
    """
    base, first = _first(job)
    return JobId(f"{base}{_CONTAINER}.{first + max(launches, 1)}")


def launch_id(job: JobId, launch: int) -> TaskId:
    """Return the task id of a job's launch, from 1; later jobs of an instance continue the numbers of earlier ones."""
    base, first = _first(job)
    return TaskId(f"{base}{_CONTAINER}.{first + launch - 1}" if base else f"{job}.{launch}")


def launch_of(job: JobId, task: TaskId) -> int:
    """Return the number of a task's launch within its job, from 1; a task of a gang has its rank behind that number."""
    base, first = _first(job)
    if base:
        return int(task.rpartition(".")[2]) - first + 1
    return int(task.removeprefix(f"{job}.").partition(".")[0])


def _first(job: JobId) -> tuple[str, int]:
    """Return the instance of a job and the number of its first task; ("", 1) if the job is not of an instance."""
    match = _LAUNCH.fullmatch(job)
    base, number = (match[1], int(match[2])) if match else (job.removesuffix(_CONTAINER), 1)
    return (base, number) if base != job and instance_of(base) else ("", 1)


def instance_of_job(job: JobId) -> str:
    """Return the instance id of a job, "shop_db.instance-<uuid>": the inverse of `job_id`."""
    return _first(job)[0] or job.removesuffix(_CONTAINER)


def task_id(name: TaskName) -> TaskId:
    """Return the task id of an instance's launch."""
    return TaskId(f"{job_id(name.app, name.uuid)}.{name.launch}")


def instance_of(text: str) -> tuple[str, str] | None:
    """Return app and UUID of an instance id; None if the text is not an instance id."""
    match = _INSTANCE.fullmatch(text)
    return ("/" + match[1].replace("_", "/"), match[2]) if match else None


def name_of(task: str) -> TaskName | None:
    """Return the parts of a task id; None if it does not belong to an app."""
    launch = _LAUNCH.fullmatch(task)
    instance = instance_of(launch[1]) if launch else None
    return TaskName(*instance, int(launch[2])) if launch and instance else None


def hostname_of(app: str) -> str:
    """Return an app's id as a DNS name, the innermost part first, as Marathon names its tasks: "db.shop"."""
    return ".".join(reversed(app.strip("/").split("/")))
