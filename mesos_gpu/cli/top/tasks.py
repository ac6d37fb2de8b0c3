"""View of tasks: their owners, and their use of GPUs."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesos_gpu.cli import output
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.top.cards import active_jobs, bar
from mesos_gpu.cli.top.view import Row, Seen, View
from mesos_gpu.model.words import counted
from mesos_gpu.wire.listing.filters import By, passes

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, Job, Task
    from mesos_gpu.cli.client import Client


class _OnCard(NamedTuple):
    """A task's use of one GPU; None values are not known."""

    busy_pct: float | None
    memory_mib: int | None


def look(client: "Client", nodes: Sequence[str] = ()) -> Seen:
    """Return the rows of all tasks of active jobs, or of those on the given nodes, with the use of their GPUs."""
    from mesos_gpu.api.spec.shapes import Tasks

    asked = {By.NODE: nodes} if nodes else {}
    tasks = [
        task
        for task in client.get("/v1/tasks", Tasks)["tasks"]
        if task["job_id"] and passes(asked, {By.NODE: (task["hostname"],)})
    ]
    listed = active_jobs(client)
    jobs = {job["id"]: job for job in listed}
    cards = _cards(client.gpus(nodes))
    documents = [_task_document(task, jobs.get(task["job_id"] or ""), cards) for task in tasks]
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i]["job_id"] or "", tasks[i]["rank"]))
    waiting = sum(job["state"] == "pending" for job in listed)
    running = counted(len({task["job_id"] for task in tasks}), "job")
    summary = f"tasks: {len(tasks)} of {running}; waiting: {counted(waiting, 'job')}"
    return Seen([_row(documents[i]) for i in order], summary, [documents[i] for i in order])


def _cards(gpus: "Sequence[Gpu]") -> Mapping[str, Sequence[_OnCard]]:
    """Return the known use of GPUs, held whole or in part, by task."""
    cards = defaultdict[str, list[_OnCard]](list)
    for gpu in gpus:
        use = gpu["use"]
        if gpu["task_id"] is not None and gpu["sharing"] is None:
            cards[gpu["task_id"]].append(
                _OnCard(use["busy_pct"], use["memory_used_mib"]) if use else _OnCard(None, None)
            )
        for share in gpu["shares"]:
            used = share["used"]
            cards[share["task_id"]].append(
                _OnCard(used["compute_pct"], used["memory_mib"]) if used else _OnCard(None, None)
            )
    return cards


def _task_document(
    task: "Task", job: "Job | None", cards: Mapping[str, Sequence[_OnCard]]
) -> dict[str, Any]:  # the document of --json
    on = cards.get(task["id"], ())
    busy, memory = [card.busy_pct for card in on], [card.memory_mib for card in on]
    use = job["use"] if job else None
    known = {
        "busy_pct": None if not on or None in busy else sum(percent or 0 for percent in busy) / len(on),
        "memory_mib": None if not on or None in memory else sum(mib or 0 for mib in memory),
        "idle_s": use["idle_s"] if use else None,
    }
    owner = {"owner": job["owner"], "queue": job["queue"]} if job else {"owner": None, "queue": None}
    return {**task, **owner, "use": known}


def _row(task: dict[str, Any]) -> Row:
    use, begun = task["use"], task["started_at"]
    ran_s = None if begun is None else time.time() - begun
    busy_pct = None if use["busy_pct"] is None else round(use["busy_pct"], 1)
    cells = (
        task["id"], task["owner"], task["queue"], task["state"], task["hostname"], len(task["gpu_ids"]), busy_pct,
        bar(busy_pct, 100), use["memory_mib"], output.span(use["idle_s"]), output.span(ran_s),
    )  # fmt: skip
    amounts = {
        "memory": use["memory_mib"], "compute": busy_pct, "idle": use["idle_s"], "ran": ran_s,
        "gpus": len(task["gpu_ids"]),
    }  # fmt: skip
    return Row(task["id"], cells, task["job_id"], amounts)


TASKS: Final = View(
    "tasks",
    ("TASK", "USER", "QUEUE", "STATE", "HOST", "GPUS", "BUSY_%", "COMPUTE", "USED_MIB", "IDLE", "RAN"),
    Fit(
        cut=("USER",),
        leave=("COMPUTE", "QUEUE", "RAN", "STATE", "USED_MIB", "HOST", "USER"),
        ids=("TASK",),
        hosts=("HOST",),
        names=("TASK",),
        paths=("QUEUE",),
    ),
    ("task", "memory", "compute", "idle", "ran", "gpus"),
    look,
    "No running tasks.",
    ("COMPUTE",),
)
