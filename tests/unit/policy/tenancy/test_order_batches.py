"""Jobs of one leaf that follow each other: the line looks at other leaves wherever the next one may stand elsewhere."""

import pytest

from mesos_gpu.engine.indexes.charges import Sums
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.policy.tenancy.order import Entry, Line, Rank

CHILDREN = {"": ["a", "b"]}
DUE = {"default": 8, "old": 1}


def order(a: list[Entry[str]], b: list[Entry[str]], starts: str = "") -> list[str]:
    """The jobs as the line gives them; those in `starts` hold what they cost from then on."""
    held = Sums()
    given = []
    for job in Line(CHILDREN, lambda path, pool: DUE[pool], held, {"a": a, "b": b}):
        given.append(job)
        if job in starts:
            for pool in DUE:
                held.add(JobId(job), Charge(job[0], "", pool, 4, 4))
    return given


MADE = Rank.ROOM_MADE
DIFFERENT: dict[str, tuple[Entry[str], Entry[str], Entry[str]]] = {
    "of another number": (
        Entry("a1", 1, MADE, since=1), Entry("a2", 1, MADE, since=9), Entry("b1", 1, MADE, since=5),
    ),
    "that goes elsewhere": (
        Entry("a1", 1, MADE, since=1), Entry("a2", 1, MADE, since=1, goes=True), Entry("b1", 1, MADE, since=1),
    ),
    "of a later rank": (Entry("a1", 1, MADE), Entry("a2", 1, Rank.BORROWER), Entry("b1", 1, Rank.STARVING)),
    "of a higher cost": (Entry("a1", 1), Entry("a2", 5), Entry("b1", 3)),
    "of a pool that is owed less": (Entry("a1", 1), Entry("a2", 1, pool="old"), Entry("b1", 4)),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_line_looks_at_others_before_a_job(first: Entry[str], second: Entry[str], other: Entry[str]) -> None:
    assert order([first, second], [other]) == ["a1", "b1", "a2"]


def test_line_looks_at_others_when_a_job_has_started() -> None:
    jobs = [Entry("a1", 1), Entry("a2", 1)], [Entry("b1", 1)]
    assert order(*jobs) == ["a1", "a2", "b1"]
    assert order(*jobs, starts="a1") == ["a1", "b1", "a2"]
