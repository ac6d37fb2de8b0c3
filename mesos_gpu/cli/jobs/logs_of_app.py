"""`mesos-gpu logs /app`: what the tasks of an app write, each below or after its name."""

import time
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli.apps.rolling import app_if_any
from mesos_gpu.cli.fit import short_ids
from mesos_gpu.cli.jobs.stream import Label, Marks, Shown, Stream
from mesos_gpu.cli.waiting import be_patient
from mesos_gpu.errors import NotFound

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Json, Marathon

_LOOK_S: Final = 1.0


class _Task:
    """A task of the app, and how far its streams are printed."""

    def __init__(self, marathon: "Marathon", id: str, shown: "Shown", marks: Marks, title: str) -> None:
        """`title`: what each line begins with, if that is asked for; else `marks` stand over them."""
        self.id, self._marks = id, marks
        label = title if shown.prefix else ""
        self.streams = [
            Stream(
                marathon.client,
                id,
                name,
                to_stderr=False,
                marks=None if label else marks,
                label=Label(label, name, stamped=shown.stamped) if label or shown.stamped else None,
                since=shown.since,
            )
            for name in shown.names
        ]

    def tail(self, title: str, lines: int) -> None:
        """Print its last lines."""
        self._marks.of(title)
        for stream in self.streams:
            stream.tail(self.id, lines)

    def pump(self, title: str) -> None:
        """Print what is new."""
        self._marks.of(title)
        for stream in self.streams:
            stream.pump(self.id)

    def finish(self) -> None:
        """Print last lines that have no end."""
        for stream in self.streams:
            stream.finish()


def print_app(marathon: "Marathon", id: str, shown: "Shown", *, follow: bool) -> None:
    """Print what its tasks have written; with `follow`, and write, new ones too, until the app is deleted.

    Raises:
        NotFound: It has no task.
        Refused: The output of a task cannot be read.
    """
    marks = Marks(to_stderr=False)
    tasks: dict[str, _Task] = {}
    definition: Json | None = marathon.app(id)
    if definition is not None and not definition["tasks"] and not follow:
        raise NotFound(f"{id} has no task", remedy=f"see why: mesos-gpu why {id}")
    while definition is not None:
        ids = [each["id"] for each in sorted(definition["tasks"], key=lambda task: task["stagedAt"])]
        for task_id, title in zip(ids, short_ids(ids), strict=True):
            if task_id not in tasks:
                tasks[task_id] = _Task(marathon, task_id, shown, marks, title)
                if shown.tail is not None:
                    tasks[task_id].tail(title, shown.tail)
            tasks[task_id].pump(title)
        for gone in tasks.keys() - ids if follow else tasks:
            tasks[gone].finish()
        if not follow:
            _complain(tasks)
            return
        be_patient(marathon.client)
        time.sleep(_LOOK_S)
        definition = app_if_any(marathon, id)
    for task in tasks.values():
        task.finish()


def _complain(tasks: dict[str, _Task]) -> None:
    failure = next((s.failure for task in tasks.values() for s in task.streams if s.failure), None)
    if failure is not None:
        raise failure
