"""Ids of an app's instances and their tasks, as Marathon 1.11 writes them. Pure.

The task `/shop/db` starts for the third time in one instance is `shop_db.instance-<uuid>._app.3`. That is the engine's
own form too, "<job id>.<launch number>", if the job of an instance is called `shop_db.instance-<uuid>._app`.
"""

import re
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId, TaskId

MAX: Final = 255  # characters of a task id in Mesos: it becomes the name of a directory
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INSTANCE: Final = re.compile(rf"([a-z0-9.-]+(?:_[a-z0-9.-]+)*)\.instance-({_UUID})")
_CONTAINER: Final = "._app"  # of an app, whose container has no name
_LAUNCH: Final = re.compile(r"(.+)\._app\.([1-9][0-9]{0,17})")
_ROOM: Final = len(".instance-") + 36 + len(_CONTAINER) + len(".1000000")
MAX_OF_APP: Final = MAX - _ROOM  # characters of an app's id, without the first slash


@dataclass(frozen=True, slots=True)
class TaskName:
    """What a task id says. `app` is absolute; `launch` counts from 1."""

    app: str
    uuid: str  # of the instance, in lower case with dashes
    launch: int


def instance_id(app: str, uuid: str) -> str:
    """The id of an instance of an app, "shop_db.instance-<uuid>". An app's id has no "_": nothing is lost."""
    return f"{app.strip('/').replace('/', '_')}.instance-{uuid}"


def job_id(app: str, uuid: str) -> JobId:
    """The id of the job that an instance is: its tasks are then called as Marathon calls them."""
    return JobId(instance_id(app, uuid) + _CONTAINER)


def next_job_id(job: JobId, launches: int) -> JobId:
    """The id of the job that an instance is after `job`, which had so many launches: the number is its first task's."""
    base, first = _first(job)
    return JobId(f"{base}{_CONTAINER}.{first + max(launches, 1)}")


def launch_id(job: JobId, launch: int) -> TaskId:
    """The id of a job's task, by which launch it is, from 1. An instance counts on from the job that it was before."""
    base, first = _first(job)
    return TaskId(f"{base}{_CONTAINER}.{first + launch - 1}" if base else f"{job}.{launch}")


def launch_of(job: JobId, task: TaskId) -> int:
    """Which launch of its job a task is, from 1; one of a gang's has its rank behind that."""
    base, first = _first(job)
    if base:
        return int(task.rpartition(".")[2]) - first + 1
    return int(task.removeprefix(f"{job}.").partition(".")[0])


def _first(job: JobId) -> tuple[str, int]:
    """The instance that a job is, and the number of its first task; "": it is none."""
    match = _LAUNCH.fullmatch(job)
    base, number = (match[1], int(match[2])) if match else (job.removesuffix(_CONTAINER), 1)
    return (base, number) if base != job and instance_of(base) else ("", 1)


def instance_of_job(job: JobId) -> str:
    """The inverse of `job_id`, without the app: "shop_db.instance-<uuid>"."""
    return _first(job)[0] or job.removesuffix(_CONTAINER)


def task_id(name: TaskName) -> TaskId:
    """The id of a launch of an instance."""
    return TaskId(f"{job_id(name.app, name.uuid)}.{name.launch}")


def instance_of(text: str) -> tuple[str, str] | None:
    """App and UUID of an instance's id; None: it is none."""
    match = _INSTANCE.fullmatch(text)
    return ("/" + match[1].replace("_", "/"), match[2]) if match else None


def name_of(task: str) -> TaskName | None:
    """What a task id says; None: it is of no app."""
    launch = _LAUNCH.fullmatch(task)
    instance = instance_of(launch[1]) if launch else None
    return TaskName(*instance, int(launch[2])) if launch and instance else None


def hostname_of(app: str) -> str:
    """An app's id as a name in DNS, the innermost first, as Marathon calls its tasks: "db.shop"."""
    return ".".join(reversed(app.strip("/").split("/")))
