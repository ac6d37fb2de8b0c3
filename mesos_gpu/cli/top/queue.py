"""View of the queue: pending jobs, their requests and expected starts."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.top.view import Row, Seen, View
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.line import Waiting
    from mesos_gpu.cli.client import Client

_MAX: Final = 1000  # maximum that the interface lists at once


def look(client: "Client", _nodes: Sequence[str] = ()) -> Seen:
    """Return the rows of pending jobs, in the order in which they are considered; nodes do not apply."""
    from mesos_gpu.api.spec.cluster.line import Queue

    seen = client.get("/v1/queue", Queue, {"limit": _MAX})
    waiting = sum(queue["waiting"] for queue in seen["queues"])
    queues = sum(queue["waiting"] > 0 for queue in seen["queues"])
    gpus = round(sum(job["gpus"] for job in seen["jobs"]), 3)
    summary = (
        f"queue: {counted(waiting, 'job')} of {counted(queues, 'queue')} wait for {counted(gpus, 'GPU')}"
    )
    return Seen([_row(job) for job in seen["jobs"]], summary, seen)


def _row(job: "Waiting") -> Row:
    waits_s = time.time() - job["submitted_at"]
    cells = (
        job["position"] + 1, job["id"], job["owner"], job["queue"], job["effective_priority"], job["gpus"],
        output.span(waits_s), output.expected(job["estimate"]["at"]), job["estimate"]["basis"],
    )  # fmt: skip
    amounts = {"gpus": job["gpus"], "waits": waits_s, "priority": job["effective_priority"]}
    return Row(job["id"], cells, job["id"], amounts)


QUEUE: Final = View(
    "queue",
    ("PLACE", "JOB", "USER", "QUEUE", "PRIO", "GPUS", "WAITS", "START", "REASON"),
    Fit(
        cut=("REASON", "USER"),
        leave=("REASON", "USER", "PRIO", "QUEUE", "PLACE"),
        ids=("JOB",),
        names=("JOB",),
        paths=("QUEUE",),
    ),
    ("place", "gpus", "waits", "priority"),
    look,
    "No pending jobs.",
)
