"""Reasons of limits, each in full."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Budget,
    Guarantee,
    Hours,
    JobClass,
    Limits,
    Pool,
    QueueDocument,
    QueueSpec,
    Stop,
)
from mesos_gpu.policy.admission.limits import (
    Fault,
    Scope,
    Wait,
    class_of,
    faults,
    faults_together,
    given_to,
    scopes_of,
    too_many_submitted,
)
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import spec
from tests.unit.policy.admission.cases import wait_of_queue, waits_of_scopes

USER = "ann"
POOLS = (Pool("fast", models=("H100",)), Pool("old", models=("T4", "P4")))
CLASSES = (
    JobClass("batch", max_timeout_s=100, queues=("ml/*", "dev")),
    JobClass("plain"),
    JobClass("old", pools=("old",)),
)


def tree(own: QueueSpec | None = None, above: QueueSpec | None = None, **fields: Any) -> Tree:
    queues = {"ml": above or QueueSpec(), "ml/a": own or QueueSpec(), "ops": QueueSpec()}
    return Tree(QueueDocument(queues=queues, pools=POOLS, classes=CLASSES, **fields))


def limited(**limits: Any) -> Tree:
    return tree(QueueSpec(limits=Limits(**limits)))


def job(**fields: Any) -> JobSpec:
    given = {"queue": "ml/a", "gpus": 2, "preemptible": True, "timeout_s": 100.0, "priority": 5}
    return spec(**{**given, **fields})


def guaranteed(milli: int, pool: str = DEFAULT_POOL) -> QueueSpec:
    return QueueSpec(guarantee_gpus={pool: Guarantee(milli)}, borrow_for_s=60.0)


UNSEATED = (
    ", and only preemptible jobs start without one: make it preemptible, or give it a time limit of at most 55 s "
    "(borrow_for_s)"
)
NEVER = "queue ml/a has no guarantee"
FULL = "the guarantee of queue ml/a has no room for it even when all of it is free"

REASONS: list[tuple[Tree, dict[str, Any], list[Fault]]] = [
    (tree(), {}, []),
    (tree(), {"queue": "gone"}, [Fault("/queue", "there is no queue gone; there are default, ml/a, ops")]),
    (
        tree(), {"queue": "ml"},
        [Fault("/queue", "queue ml takes no jobs; name one below it: ml/a")],
    ),
    (tree(), {"job_class": "x"}, [Fault("/class", "there is no class x; there are batch, plain, old")]),
    (
        Tree(QueueDocument(queues={"ml/a": QueueSpec(), "ml": QueueSpec()})), {"job_class": "x"},
        [Fault("/class", "there is no class x; there are none")],
    ),
    (
        tree(), {"job_class": "batch", "queue": "ops", "timeout_s": None},
        [
            Fault("/class", "class batch is for queues ml/*, dev, not for ops"),
            Fault("/timeout_s", "max_timeout_s of class batch is 100, and it has no time limit: set timeout_s"),
        ],
    ),
    (
        tree(), {"job_class": "batch", "timeout_s": 100.5},
        [Fault("/timeout_s", "max_timeout_s of class batch is 100, and it asks for 100.5 s")],
    ),
    (
        limited(max_gpus_per_job=1, max_gpus=1.5, max_timeout_s=9, max_priority=4, max_running=0), {},
        [
            Fault("/gpus", "max_gpus_per_job of queue ml/a is 1 GPU, and it asks for 2 GPUs"),
            Fault("/gpus", "max_gpus of queue ml/a is 1.5 GPUs, and it asks for 2 GPUs"),
            Fault("/timeout_s", "max_timeout_s of queue ml/a is 9, and it asks for 100 s"),
            Fault("/priority", "max_priority of queue ml/a is 4, and it asks for 5"),
            Fault("/queue", "max_running of queue ml/a is 0: no job of it starts"),
        ],
    ),
    (limited(max_priority=0), {"priority": None}, []),
    (limited(max_priority=-1), {"priority": None}, [
        Fault("/priority", "max_priority of queue ml/a is -1, and it asks for 0"),
    ]),
    (limited(max_running=1), {}, []),
    (limited(max_submitted=0), {}, []),
    (
        tree(QueueSpec(budget=Budget(9, safe=True)), QueueSpec(budget=Budget(9, safe=True))), {"timeout_s": None},
        [Fault("/timeout_s", "the budget of queue ml/a is safe: only jobs with a time limit start; set timeout_s")],
    ),
    (
        tree(QueueSpec(budget=Budget(9)), QueueSpec(budget=Budget(9, safe=True))), {"timeout_s": None},
        [Fault("/timeout_s", "the budget of queue ml is safe: only jobs with a time limit start; set timeout_s")],
    ),
    (tree(QueueSpec(budget=Budget(9, safe=True))), {"timeout_s": None, "gpus": 0}, []),
    (tree(QueueSpec(budget=Budget(9, safe=True))), {}, []),
    (
        tree(QueueSpec(pools=("fast", "old"))), {"gpu_model": ("A100", "L4")},
        [Fault("/gpu_model", "queue ml/a uses pools fast, old, and none of them has A100 or L4")],
    ),
    (
        tree(QueueSpec(pools=("fast", "old"))), {"gpu_model": ("H100",), "job_class": "old"},
        [Fault("/gpu_model", "class old is for pools old, and none of them has H100")],
    ),
    (
        tree(QueueSpec(pools=("fast",))), {"job_class": "plain", "gpu_model": ("T4",)},
        [Fault("/gpu_model", "queue ml/a uses pools fast, and none of them has T4")],
    ),
    (tree(QueueSpec(pools=("old",))), {"gpu_model": ("P4",)}, []),
    (
        tree(QueueSpec(pools=(DEFAULT_POOL,), limit_gpus={DEFAULT_POOL: 1000})), {},
        [Fault("/gpus", "limit_gpus of queue ml/a is 1 GPU, and it asks for 2 GPUs")],
    ),
    (tree(QueueSpec(pools=(DEFAULT_POOL,), limit_gpus={DEFAULT_POOL: 2000})), {}, []),
    (
        tree(guaranteed(0), tasks_guarantee := guaranteed(1000)), {"preemptible": False, "kill_grace_s": 5.0},
        [Fault("/preemptible", f"{FULL}{UNSEATED}")],
    ),
    (tree(guaranteed(0), tasks_guarantee), {"preemptible": False, "kill_grace_s": 5.0, "gpus": 1}, []),
    (
        tree(guaranteed(2000, "old"), QueueSpec(pools=("fast", "old"))),
        {"preemptible": False, "kill_grace_s": 5.0, "gpu_model": ("H100",)},
        [Fault("/preemptible", f"{NEVER} of pool fast, which it may use{UNSEATED}")],
    ),
    (
        tree(QueueSpec(borrow_for_s=60.0), guaranteed(0)) , {"preemptible": False, "kill_grace_s": 5.0},
        [],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("known", "fields", "wanted"), REASONS)
def test_fault_of_a_job_says_what_is_asked_and_what_there_is(
    known: Tree, fields: dict[str, Any], wanted: list[Fault]
) -> None:
    asked = job(**fields)
    assert list(faults(known, asked, USER, asked.gpu_milli_in_all)) == wanted


def test_fault_of_a_class_without_a_pool_of_its_queue_names_the_pools() -> None:
    (fault,) = faults(tree(QueueSpec(pools=("fast",))), job(job_class="old"), USER, 2000)
    assert fault.path == "/class"
    assert fault.reason.startswith("class old is for pools old, and queue ml/a uses pools fast: ")


def test_fault_names_at_most_twenty_queues() -> None:
    queues = {f"q{n:02}": QueueSpec() for n in range(30)}
    (fault,) = faults(Tree(QueueDocument(queues=queues)), job(), USER, 0)
    assert fault.reason.startswith("there is no queue ml/a; there are default, q00, ")
    assert fault.reason.endswith("q17, q18")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ml/b", "did you mean ml/a? "),
        ("a", "did you mean ml/a? "),
        ("ops1", "did you mean ops? "),
        ("xyz", ""),
    ],
)
def test_fault_of_an_unknown_queue_names_the_queue_that_was_meant(name: str, meant: str) -> None:
    (fault,) = faults(tree(), job(queue=name), USER, 0)
    assert fault.reason == f"there is no queue {name}; {meant}there are default, ml/a, ops"


def test_fault_of_a_seat_is_by_what_each_task_costs() -> None:
    known = tree(guaranteed(2000))
    asked = job(preemptible=False, gpus=1, tasks=2)
    assert list(faults(known, asked, USER, 2000)) == []
    assert [each.path for each in faults(known, asked, USER, 4000)] == ["/preemptible"]


@pytest.mark.parametrize(
    ("borrow_for_s", "remedy"),
    [(5.0, ""), (6.0, ", or give it a time limit of at most 1 s (borrow_for_s)"), (0.0, "")],
)
def test_remedy_for_a_seat_names_a_time_limit_that_is_possible(borrow_for_s: float, remedy: str) -> None:
    own = QueueSpec(borrow_for_s=borrow_for_s)
    known = tree(own, None)
    known = Tree(QueueDocument(queues={**known.document.queues, "ops": guaranteed(8000)}))
    (fault,) = faults(known, job(preemptible=False, kill_grace_s=5.0), USER, 2000)
    other = ", or use a queue whose guarantee has room for it, as ops"
    assert (
        fault.reason
        == f"{NEVER}, and only preemptible jobs start without one: make it preemptible{remedy}{other}"
    )


TOGETHER = (
    (Limits(max_running=3), "max_running of queue ml/a is 3, and 4 are asked for"),
    (Limits(max_submitted=3), "max_submitted of queue ml/a is 3, and 4 are asked for"),
    (Limits(max_gpus=7), "max_gpus of queue ml/a is 7 GPUs, and together they ask for 8 GPUs"),
)


@pytest.mark.parametrize(("limits", "reason"), TOGETHER)
def test_fault_of_many_jobs_says_how_many_may_be(limits: Limits, reason: str) -> None:
    known = tree(QueueSpec(limits=limits))
    assert list(faults_together(known, job(), USER, 2000, 4)) == [Fault("/instances", reason)]
    assert list(faults_together(known, job(), USER, 2000, 3)) == []


def test_fault_of_many_jobs_is_of_each_queue_whose_pools_have_too_little() -> None:
    above = QueueSpec(pools=("fast", "old"), limit_gpus={"fast": 2000, "old": 4000})
    known = tree(QueueSpec(limit_gpus={"fast": 1000, "old": 3000}), above)
    told = [each.reason for each in faults_together(known, job(gpus=1), USER, 1000, 7)]
    assert told == [
        "limit_gpus of queue ml/a is 4 GPUs, and together they ask for 7 GPUs",
        "limit_gpus of queue ml is 6 GPUs, and together they ask for 7 GPUs",
    ]
    (fault,) = faults_together(known, job(gpus=1), USER, 1000, 5)
    assert fault.reason.startswith("limit_gpus of queue ml/a is 4 GPUs")
    of_one = [each.reason for each in faults_together(known, job(gpus=1, gpu_model=("T4",)), USER, 1000, 5)]
    assert of_one == [
        "limit_gpus of queue ml/a is 3 GPUs, and together they ask for 5 GPUs",
        "limit_gpus of queue ml is 4 GPUs, and together they ask for 5 GPUs",
    ]


def test_full_queue_says_which_limit_of_whom_is_reached() -> None:
    counts = {("ml", USER): 3, ("", EVERYBODY): 5}
    scopes = [Scope("ml", USER, Limits(max_submitted=3)), Scope("", EVERYBODY, Limits(max_submitted=5))]

    def submitted(path: str, user: str) -> int:
        return counts[path, user]

    assert (
        too_many_submitted(scopes, submitted)
        == "max_submitted of user ann in queue ml is 3, and as many jobs wait or run"
    )
    counts["ml", USER] = 2
    assert (
        too_many_submitted(scopes, submitted)
        == "max_submitted of the cluster is 5, and as many jobs wait or run"
    )
    counts["", EVERYBODY] = 4
    assert too_many_submitted(scopes, submitted) == ""


@pytest.mark.parametrize(
    ("limits", "running", "held", "words"),
    [
        (Limits(max_running=1), 1, 0, "user ann in queue ml may have 1 job that run, and has 1"),
        (Limits(max_running=2), 4, 0, "user ann in queue ml may have 2 jobs that run, and has 4"),
        (Limits(max_gpus=4), 9, 2500, "user ann in queue ml may hold 4 GPUs, and holds 2.5"),
        (Limits(max_gpus=0), 0, 0, "user ann in queue ml may hold 0 GPUs, and holds 0"),
        (Limits(max_gpus=4.5), 9, 2500, None),
    ],
)
def test_job_that_waits_for_a_limit_says_what_is_held(
    limits: Limits, running: int, held: int, words: str | None
) -> None:
    free = Scope("ml", EVERYBODY, Limits(max_submitted=0))
    waits = waits_of_scopes(
        [free, Scope("ml", USER, limits)], 2000,
        lambda path, user: running if user == USER else 99,
        lambda path, user: held if user == USER else 99_000,
    )  # fmt: skip
    assert [*waits] == ([] if words is None else [Wait(Stage.USER_LIMIT, words)])


NO_SEAT = "it is not preemptible, so it starts only within what its queue is guaranteed; nothing of that is free for it"


@pytest.mark.parametrize(
    ("known", "fields", "seated", "wanted"),
    [
        (tree(), {"queue": "gone"}, False, None),
        (tree(guaranteed(4000)), {"queue": "gone", "preemptible": False}, False, None),
        (
            tree(replace(guaranteed(1000), hours=(Hours("22:00", "06:00"),))), {"preemptible": False}, False,
            Wait(Stage.GUARANTEE, NO_SEAT),
        ),
        (tree(QueueSpec(stop=Stop.HOLD)), {"job_class": "x"}, True, Wait(Stage.HOLD, "queue ml/a is on hold")),
        (tree(), {"job_class": "x"}, True, Wait(Stage.CLASS, "there is no class x any more")),
        (
            tree(), {"job_class": "batch", "queue": "ops"}, True,
            Wait(Stage.CLASS, "class batch is for queues ml/*, dev now"),
        ),
        (tree(), {"job_class": "plain"}, True, None),
        (tree(guaranteed(4000)), {"preemptible": False}, False, Wait(Stage.GUARANTEE, NO_SEAT)),
        (tree(guaranteed(4000)), {"preemptible": False}, True, None),
        (tree(guaranteed(4000)), {}, False, None),
        (
            tree(guaranteed(1000)), {"preemptible": False, "kill_grace_s": 5.0}, False,
            Wait(Stage.GUARANTEE, f"{FULL}{UNSEATED}"),
        ),
    ],
)  # fmt: skip
def test_job_that_waits_for_its_queue_says_why(
    known: Tree, fields: dict[str, Any], seated: bool, wanted: Wait | None
) -> None:
    assert wait_of_queue(known, job(**fields), seated=seated) == wanted


def test_time_limit_of_a_queue_is_for_jobs_without_one() -> None:
    known = tree(QueueSpec(default_timeout_s=60.0, default_priority=3))
    assert given_to(known, job(timeout_s=None, priority=None)) == {"timeout_s": 60.0, "priority": 3}
    assert given_to(known, job()) == {}
    assert given_to(tree(), job(timeout_s=None, priority=None)) == {"priority": 0}
    assert given_to(known, job(queue="gone", timeout_s=None)) == {}


def test_limits_of_a_queue_that_is_gone_are_those_of_its_user() -> None:
    few = Limits(max_running=3)
    known = Tree(QueueDocument(queues={"ml": QueueSpec(limits=few)}, users={EVERYBODY: few}))
    assert scopes_of(known, "gone", USER) == (Scope("", USER, few),)
    assert scopes_of(known, "ml/gone", USER) == (Scope("ml", EVERYBODY, few), Scope("", USER, few))


def test_class_is_found_by_its_name() -> None:
    assert [class_of(tree(), name) for name in ("plain", "x", None)] == [CLASSES[1], None, None]
