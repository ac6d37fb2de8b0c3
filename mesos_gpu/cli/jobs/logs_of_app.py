"""`mesos-gpu logs /app`: output of an app's tasks, or of the latest ended task if none runs."""

import time
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.apps.rolling import app_if_any
from mesos_gpu.cli.fit import short_ids
from mesos_gpu.cli.jobs.stream import Label, Marks, Shown, Stream, task_of
from mesos_gpu.cli.waiting import be_patient
from mesos_gpu.errors import NotFound
from mesos_gpu.model.jobs.job import JobState

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Json, Marathon

_LOOK_S: Final = 1.0
_ENDED: Final = [state.value for state in JobState if state.ended]
_MAX_LISTED: Final = 10  # ended instances among which the latest launched one is searched


class _Task:
    """A task of the app, and the printed position of its streams.

    With `--prefix`, `title` precedes each line; otherwise `marks` prints headings.
    """

    def __init__(self, marathon: "Marathon", id: str, shown: "Shown", marks: Marks, title: str) -> None:
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
        """Skip to the last lines."""
        self._marks.of(title)
        for stream in self.streams:
            stream.tail(self.id, lines)

    def pump(self, title: str) -> None:
        """Print new output."""
        self._marks.of(title)
        for stream in self.streams:
            stream.pump(self.id)

    def finish(self) -> None:
        """Print unfinished last lines."""
        for stream in self.streams:
            stream.finish()


def print_app(marathon: "Marathon", id: str, shown: "Shown", *, follow: bool) -> None:
    """Print the output of an app's tasks; with `follow` keep printing, also for new tasks, until the app is deleted.

    If no task runs, the output of the latest that ended is printed, with a note on stderr.

    Raises:
        NotFound: The app has no task, and no ended one is known.
        Refused: The output of a task cannot be read.
    """
    marks = Marks(to_stderr=False)
    tasks: dict[str, _Task] = {}
    definition: Json | None = marathon.app(id)
    while definition is not None:
        ids = [task["id"] for task in sorted(definition["tasks"], key=lambda task: task["stagedAt"])]
        if not ids:
            ids = _ended(marathon, id, tasks)
        if not ids and not follow:
            raise NotFound(
                f"{id} has no task, and no recent one is known",
                remedy=f"find out why with: mesos-gpu why {id}",
            )
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


def _ended(marathon: "Marathon", id: str, shown: dict[str, _Task]) -> list[str]:
    """Return the task of the latest ended instance, and note it on stderr if it is not in `shown`; empty if unknown."""
    jobs = marathon.client.listed(states=_ENDED, limit=_MAX_LISTED, order=None, filters={"app": [id]})["jobs"]
    job = next((job for job in jobs if job["task_ids"]), None)
    task = None if job is None else task_of(job, 0)
    if job is None or task is None:
        return []
    if task not in shown:
        ended = f"{output.age(job['ended_at'])} ago: {job['message']}"
        output.note(f"no instance of {id} runs; printing the latest task {task}, which ended {ended}")
    return [task]


def _complain(tasks: dict[str, _Task]) -> None:
    failure = next((s.failure for task in tasks.values() for s in task.streams if s.failure), None)
    if failure is not None:
        raise failure
