"""Sums over jobs and past use, kept with each change, against a look at all of them."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from mesos_gpu.engine.books import Books, asked, books_of, cpus_and_memory, waits
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.usage import PastUse
from tests.doubles.builders import spec

SPEC = spec(queue="q", cpus=0.25, mem_mib=100.4, gpus=2, tasks=3)
JOB = Job(JobId("j"), SPEC, 0.0, 1, owner="ann")
KEY = ("q", (), None)


def test_amounts_that_a_job_asks_for_are_those_of_all_its_tasks() -> None:
    assert cpus_and_memory(SPEC.cpus, SPEC.mem_mib) == (250, 100)
    assert asked(SPEC) == (6000, 750, 300)
    assert waits(JOB) is SPEC
    assert waits(replace(JOB, state=JobState.RUNNING)) is None
    assert waits(None) is None


def test_revision_of_books_grows_with_what_is_wanted_only() -> None:
    books, runs = Books(), replace(JOB, state=JobState.RUNNING)
    for old, new, revision in (
        (None, JOB, 1),
        (JOB, replace(JOB, message="waits"), 1),
        (JOB, replace(JOB, spec=replace(SPEC)), 1),
        (JOB, replace(JOB, spec=replace(SPEC, cpus=1)), 3),
        (replace(JOB, spec=replace(SPEC, cpus=1)), runs, 4),
        (runs, replace(runs, message="runs"), 4),
        (runs, None, 4),
    ):
        books.enter_job(old, new)
        assert books.revision == revision
    assert (books.submitted, books.wanted) == ({}, {})


def test_books_of_arrays_have_what_waits_and_what_could_start() -> None:
    books, array = Books(), JobArray(JobId("a"), replace(SPEC, tasks=1, array="0-9"), 0.0, 1, "ann")
    for waiting, startable, revision in ((9, 3, 1), (9, 3, 1), (8, 3, 1), (8, 2, 2), (0, 0, 3), (0, 0, 3)):
        books.enter_array(array, waiting, startable)
        assert books.submitted == ({("q", "ann"): waiting} if waiting else {})
        assert books.wanted == (
            {KEY: (2000 * startable, 250 * startable, 100 * startable)} if startable else {}
        )
        assert books.arrays == ({"a": (waiting, startable)} if waiting else {})
        assert books.revision == revision


@pytest.mark.parametrize("seed", range(3))
def test_books_equal_a_look_at_all_jobs_and_uses(seed: int) -> None:
    chance, books = random.Random(seed), Books()
    jobs, uses, changes = dict[str, Job](), dict[tuple[str, str], PastUse](), Counter[str]()
    for number in range(300):
        name, queue, user = chance.choice("abcd"), chance.choice("pq"), chance.choice(("ann", "bob"))
        match chance.choice(["enter", "enter", "forget", "use", "drop"]):
            case "enter":
                wanted = replace(
                    SPEC, queue=queue, tasks=chance.choice((1, 2)), gpu_model=chance.choice(((), ("A",)))
                )
                new = replace(
                    JOB, id=JobId(name), spec=wanted, owner=user, state=chance.choice(list(JobState))
                )
                books.enter_job(jobs.get(name), new)
                jobs[name] = new
            case "forget" if name in jobs:
                books.enter_job(jobs.pop(name), None)
            case "use":
                uses[queue, user] = PastUse(queue, user, number)
                books.enter_use(uses[queue, user])
                changes[queue] += 1
            case "drop" if (queue, user) in uses:
                del uses[queue, user]
                books.drop_use(queue, user)
                changes[queue] += 1
        live = [job for job in jobs.values() if not job.state.ended]
        assert books.submitted == Counter((job.spec.queue, job.owner) for job in live)
        sums = dict[object, list[int]]()
        for job in live:
            if job.state is JobState.PENDING:
                sum_ = sums.setdefault((job.spec.queue, job.spec.gpu_model, None), [0, 0, 0])
                sum_[:] = [known + more for known, more in zip(sum_, asked(job.spec), strict=True)]
        assert books.wanted == {key: tuple(sum_) for key, sum_ in sums.items()}
        by_queue = {queue: {u: use for (q, u), use in uses.items() if q == queue} for queue, _ in uses}
        assert books.users == by_queue
        assert books.changes == changes
    made = books_of(jobs.values(), uses.values())
    assert (made.submitted, made.wanted, made.users) == (books.submitted, books.wanted, books.users)
