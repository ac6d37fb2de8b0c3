"""Nouns with other values of some fields, as `dataclasses.replace` makes them."""

from dataclasses import dataclass, replace

import pytest

from mesos_gpu.engine.changed import changed
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task, TaskState

TASK = Task(TaskId("t"), AgentId("a"), "e", None, TaskState.LAUNCHED, 1.0)
JOB = Job(JobId("j"), JobSpec("j", command="true"), 0.0, 1)


@pytest.mark.parametrize(
    ("noun", "fields"),
    [
        (TASK, {"state": TaskState.RUNNING, "started_at": 2.0}),
        (JOB, {"version": 7, "state": JobState.RUNNING}),
        (Node(AgentId("a"), "host"), {"reported_at": 3.0}),
        (TASK, {}),
    ],
    ids=["task", "job", "node", "nothing"],
)
def test_changed_noun_equals_what_replace_makes(noun: Task | Job | Node, fields: dict[str, object]) -> None:
    made = changed(noun, **fields)
    assert made == replace(noun, **fields)  # type: ignore[arg-type]
    assert made is not noun
    assert hash(made.id) == hash(noun.id)


def test_changed_noun_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        changed(TASK, colour="red")


@dataclass(frozen=True, slots=True)
class Checked:
    """A noun that checks itself."""

    name: str
    size: int

    def __post_init__(self) -> None:
        """Refuse a size that is none."""
        assert self.size > 0


def test_changed_noun_that_checks_itself_is_checked() -> None:
    with pytest.raises(AssertionError, match="Checked checks itself"):
        changed(Checked("a", 1), size=0)
