"""Limits of queues, users and classes: what is refused when it is submitted, at each bound and one beyond it."""

from typing import Any

import pytest

from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, JobSpec
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Guarantee,
    JobClass,
    Limits,
    Pool,
    QueueDocument,
    QueueSpec,
    Stop,
)
from mesos_gpu.policy.admission.limits import (
    Lack,
    Scope,
    charge_percent,
    faults,
    faults_together,
    given_to,
    pools_for,
    queue_of_app,
    scopes_of,
    too_many_submitted,
)
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import spec
from tests.unit.policy.admission.cases import wait_of_queue, waits_of_scopes

USER = "ann"
POOLS = (Pool("fast", models=("H100",)), Pool("old", models=("T4",)))


def tree(limits: Limits | None = None, **fields: Any) -> Tree:
    own = QueueSpec(limits=limits) if limits is not None else QueueSpec()
    return Tree(QueueDocument(queues={"ml": QueueSpec(), "ml/a": own, "ops": QueueSpec()}, **fields))


def job(**fields: Any) -> JobSpec:
    return spec(
        **{"queue": "ml/a", "gpus": 2, "preemptible": True, "timeout_s": 100.0, "priority": 5, **fields}
    )


def paths(tree: Tree, job: JobSpec, cost_milli: int | None = None) -> list[str]:
    cost = job.gpu_milli_in_all if cost_milli is None else cost_milli
    return [fault.path for fault in faults(tree, job, USER, cost)]


BOUNDS: dict[str, tuple[Limits, dict[str, Any], str]] = {
    "GPUs of a job, of all its tasks": (Limits(max_gpus_per_job=4), {"tasks": 3}, "/gpus"),
    "GPUs that are held": (Limits(max_gpus=4), {"tasks": 3}, "/gpus"),
    "the time limit": (Limits(max_timeout_s=100), {"timeout_s": 100.5}, "/timeout_s"),
    "no time limit": (Limits(max_timeout_s=100), {"timeout_s": None}, "/timeout_s"),
    "the priority": (Limits(max_priority=5), {"priority": 6}, "/priority"),
}


@pytest.mark.parametrize(("limits", "beyond", "path"), BOUNDS.values(), ids=BOUNDS)
def test_limits_refuse_a_job_beyond_them_and_not_one_at_them(
    limits: Limits, beyond: dict[str, Any], path: str
) -> None:
    assert paths(tree(limits), job(tasks=2)) == []
    assert paths(tree(limits), job(**{"tasks": 2, **beyond})) == [path]
    assert paths(tree(), job(**{"tasks": 2, **beyond})) == [], "nothing is limited"


@pytest.mark.parametrize(("most", "refused"), [(0, ["/queue"]), (1, [])])
def test_limits_of_no_running_job_refuse_all(most: int, refused: list[str]) -> None:
    assert paths(tree(Limits(max_running=most)), job()) == refused


def test_limits_count_the_cost_and_a_job_the_gpus() -> None:
    assert paths(tree(Limits(max_gpus=4)), job(), cost_milli=4001) == ["/gpus"]
    assert paths(tree(Limits(max_gpus_per_job=2)), job(), cost_milli=8000) == []


def test_limits_hold_also_of_queues_above_and_of_users() -> None:
    few, fewer, fewest = Limits(max_running=3), Limits(max_running=2), Limits(max_running=1)
    document = QueueDocument(
        queues={
            "ml": QueueSpec(limits=few, users={EVERYBODY: fewer}),
            "ml/a": QueueSpec(users={USER: fewest}),
        },
        users={"bob": few},
    )
    assert scopes_of(Tree(document), "ml/a", USER) == (
        Scope("ml/a", USER, fewest), Scope("ml", EVERYBODY, few), Scope("ml", USER, fewer),
    )  # fmt: skip
    assert scopes_of(Tree(document), "ml/a", "bob") == (
        Scope("ml", EVERYBODY, few), Scope("ml", "bob", fewer), Scope("", "bob", few),
    )  # fmt: skip


def test_limits_name_whose_they_are() -> None:
    assert Scope("ml", EVERYBODY, Limits()).words == "queue ml"
    assert Scope("ml", USER, Limits()).words == "user ann in queue ml"
    assert Scope("", "", Limits()).words == "user unknown"
    assert Scope("ml", EVERYBODY, Limits()).stage is Stage.QUEUE_LIMIT
    assert Scope("ml", USER, Limits()).stage is Stage.USER_LIMIT


def test_queues_that_take_no_jobs_are_refused_alone() -> None:
    assert paths(tree(Limits(max_priority=0)), job(queue="ml")) == ["/queue"]
    assert paths(tree(Limits(max_priority=0)), job(queue="none")) == ["/queue"]


CLASSES = (
    JobClass("batch", priority=-7, preemptible=True, charge_percent=50, max_timeout_s=100, queues=("ml/*",)),
    JobClass("plain"),
)


def test_classes_refuse_other_queues_and_longer_limits() -> None:
    known = tree(classes=CLASSES)
    assert paths(known, job(job_class="batch")) == []
    assert paths(known, job(job_class="batch", queue="ops")) == ["/class"]
    assert paths(known, job(job_class="batch", timeout_s=100.5)) == ["/timeout_s"]
    assert paths(known, job(job_class="batch", timeout_s=None)) == ["/timeout_s"]
    assert paths(known, job(job_class="plain", timeout_s=None)) == []
    assert paths(known, job(job_class="other")) == ["/class"]
    assert [charge_percent(known.document, name) for name in ("batch", "plain", "other", None)] == [
        50,
        100,
        100,
        100,
    ]


def test_classes_and_queues_give_what_a_job_leaves_open() -> None:
    queues = {"ml": QueueSpec(default_priority=3, default_timeout_s=60.0)}
    known = Tree(QueueDocument(queues=queues, classes=CLASSES))
    open_job = spec(queue="ml", priority=None, timeout_s=None, preemptible=False)
    assert given_to(known, open_job) == {"priority": 3, "timeout_s": 60.0}
    given = given_to(
        known, spec(queue="ml", priority=None, timeout_s=9.0, job_class="batch", preemptible=False)
    )
    assert given == {"preemptible": True, "priority": -7}
    given = given_to(
        known, spec(queue="ml", priority=None, timeout_s=9.0, job_class="plain", preemptible=False)
    )
    assert given == {"priority": 3}
    assert "priority" not in given_to(known, spec(queue="ml", priority=0, timeout_s=5.0, job_class="batch"))
    assert given_to(known, spec(queue="none", priority=None)) == {"priority": 0}


@pytest.mark.parametrize("limits", [Limits(max_running=3), Limits(max_submitted=3), Limits(max_gpus=6)])
def test_instances_together_stay_within_limits(limits: Limits) -> None:
    known = tree(limits)
    assert list(faults_together(known, job(), USER, 2000, 3)) == []
    (fault,) = faults_together(known, job(), USER, 2000, 4)
    assert fault.path == "/instances"
    assert list(faults_together(tree(), job(), USER, 2000, 1000)) == []


def test_instances_together_stay_within_what_all_their_pools_may_hold() -> None:
    queues = {
        "ml": QueueSpec(pools=("fast", "old"), limit_gpus={"fast": 2000, "old": 4000}),
        "ml/a": QueueSpec(),
    }
    known = Tree(QueueDocument(queues=queues, pools=POOLS))
    assert list(faults_together(known, job(gpus=1), USER, 1000, 6)) == []
    (fault,) = faults_together(known, job(gpus=1), USER, 1000, 7)
    assert "queue ml is 6 GPUs" in fault.reason
    half = {"ml": QueueSpec(pools=("fast", "old"), limit_gpus={"fast": 2000}), "ml/a": QueueSpec()}
    free = Tree(QueueDocument(queues=half, pools=POOLS))
    assert list(faults_together(free, job(gpus=1), USER, 1000, 100)) == [], "one of them is without a limit"


def test_limits_of_pools_refuse_a_job_that_none_of_them_could_hold() -> None:
    queues = {
        "ml": QueueSpec(pools=("fast", "old"), limit_gpus={"fast": 1000, "old": 2000}),
        "ml/a": QueueSpec(),
    }
    known = Tree(QueueDocument(queues=queues, pools=POOLS))
    assert paths(known, job(gpus=2)) == []
    assert paths(known, job(gpus=3)) == ["/gpus"]


def test_pools_are_those_of_queue_class_and_models() -> None:
    queues = {"ml": QueueSpec(pools=("old", "fast", DEFAULT_POOL))}
    known = Tree(QueueDocument(queues=queues, pools=POOLS, classes=(JobClass("c", pools=("fast",)),)))
    (of_class,) = known.document.classes
    assert pools_for(known, "ml", None) == ("old", "fast", DEFAULT_POOL)
    assert pools_for(known, "ml", None, ("T4",)) == ("old", DEFAULT_POOL)
    assert pools_for(known, "ml", None, ("A100",)) == (DEFAULT_POOL,)
    assert pools_for(known, "ml", of_class) == ("fast",)
    assert pools_for(known, "ml", of_class, ("T4",)) == ()
    assert paths(known, spec(queue="ml", gpus=1, job_class="c", gpu_model=("T4",))) == ["/gpu_model"]


@pytest.mark.parametrize(
    ("queue", "app", "leaf"),
    [
        (DEFAULT_QUEUE, "/ops/web", "ops"),
        (DEFAULT_QUEUE, "/ops", DEFAULT_QUEUE),
        (DEFAULT_QUEUE, "/ml/web", DEFAULT_QUEUE),  # no leaf
        (DEFAULT_QUEUE, "/other/web", DEFAULT_QUEUE),
        ("ml/a", "/ops/web", "ml/a"),
    ],
)
def test_app_waits_in_the_queue_that_it_names_or_the_leaf_of_its_group(
    queue: str, app: str, leaf: str
) -> None:
    assert queue_of_app(tree(), queue, app) == leaf


# --- when it might start


def counted(number: int) -> Any:
    return lambda path, user: number


@pytest.mark.parametrize(("submitted", "full"), [(2, False), (3, True), (4, True)])
def test_submitted_jobs_are_bounded(submitted: int, full: bool) -> None:
    scopes = [Scope("ml", USER, Limits(max_running=1)), Scope("ml", EVERYBODY, Limits(max_submitted=3))]
    assert bool(too_many_submitted(scopes, counted(submitted))) is full


@pytest.mark.parametrize(
    ("running", "held", "cost_milli", "waits"),
    [
        (2, 0, 1000, False),
        (3, 0, 1000, True),
        (0, 3000, 1000, False),
        (0, 3001, 1000, True),
        (0, 9000, 0, False),
    ],
)
def test_job_waits_at_a_limit_of_running_jobs_or_held_gpus(
    running: int, held: int, cost_milli: int, waits: bool
) -> None:
    scopes = [Scope("ml", USER, Limits(max_running=3, max_gpus=4))]
    waits_now = [*waits_of_scopes(scopes, cost_milli, counted(running), counted(held))]
    assert bool(waits_now) is waits
    assert {wait.stage for wait in waits_now} <= {Stage.USER_LIMIT}
    assert not [*waits_of_scopes([Scope("ml", USER, Limits())], cost_milli, counted(running), counted(held))]


@pytest.mark.parametrize(
    ("limits", "cost_milli", "lack"),
    [
        (Limits(max_running=3), 1000, Lack(2, "ml", user=USER, counts_jobs=True)),
        (Limits(max_gpus=4), 1500, Lack(1500, "ml", user=USER)),
        (Limits(max_gpus=4), 4000, Lack(4000, "ml", user=USER)),
        (Limits(max_gpus=4), 4001, None),
        (Limits(max_running=0), 1000, None),
    ],
)
def test_job_at_a_limit_lacks_what_ends_of_jobs_give_back(
    limits: Limits, cost_milli: int, lack: Lack | None
) -> None:
    (wait,) = waits_of_scopes([Scope("ml", USER, limits)], cost_milli, counted(4), counted(4000))
    assert wait.lack == lack


@pytest.mark.parametrize(
    ("above", "own"), [(Stop.HOLD, Stop.NONE), (Stop.NONE, Stop.HOLD), (Stop.DRAIN, Stop.NONE)]
)
def test_job_waits_while_its_queue_or_one_above_is_on_hold(above: Stop, own: Stop) -> None:
    known = Tree(QueueDocument(queues={"ml": QueueSpec(stop=above), "ml/a": QueueSpec(stop=own)}))
    wait = wait_of_queue(known, job(), seated=True)
    assert wait is not None
    assert (wait.stage, wait.words) == (
        Stage.HOLD,
        f"queue {'ml' if own is Stop.NONE else 'ml/a'} is on hold",
    )


def test_job_waits_when_its_class_is_gone_or_left_its_queue() -> None:
    known = tree(classes=CLASSES)
    assert wait_of_queue(known, job(job_class="batch"), seated=False) is None
    for fields in {"job_class": "gone"}, {"job_class": "batch", "queue": "ops"}:
        wait = wait_of_queue(known, job(**fields), seated=True)
        assert wait is not None
        assert wait.stage is Stage.CLASS


SEATS: dict[str, tuple[dict[str, Any], bool]] = {
    "it may not be stopped": ({}, True),
    "it may be": ({"preemptible": True}, False),
    "it asks for no GPU": ({"gpus": 0}, False),
    "it ends soon enough": ({"timeout_s": 50.0, "kill_grace_s": 10.0}, False),
    "it ends just too late": ({"timeout_s": 50.5, "kill_grace_s": 10.0}, True),
    "nobody knows when it ends": ({"timeout_s": None}, True),
}


@pytest.mark.parametrize(("fields", "waits"), SEATS.values(), ids=SEATS)
def test_job_waits_for_a_seat_only_where_it_needs_one(fields: dict[str, Any], waits: bool) -> None:
    own = QueueSpec(guarantee_gpus={DEFAULT_POOL: Guarantee(4000)}, borrow_for_s=60.0)
    known = Tree(QueueDocument(queues={"ml": QueueSpec(), "ml/a": own}))
    asked = job(**{"preemptible": False, "timeout_s": 100.0, **fields})
    wait = wait_of_queue(known, asked, seated=False)
    assert (wait is not None) is waits
    assert wait is None or wait.stage is Stage.GUARANTEE
    assert wait_of_queue(known, asked, seated=True) is None


@pytest.mark.parametrize(
    ("guarantee", "gpus", "refused"), [(4000, 4, []), (4000, 5, ["/preemptible"]), (0, 1, ["/preemptible"])]
)
def test_job_that_no_guarantee_could_hold_is_refused(guarantee: int, gpus: int, refused: list[str]) -> None:
    own = QueueSpec(guarantee_gpus={DEFAULT_POOL: Guarantee(guarantee)} if guarantee else {})
    other = QueueSpec(guarantee_gpus={DEFAULT_POOL: Guarantee(8000)})
    known = Tree(QueueDocument(queues={"ml": QueueSpec(), "ml/a": own, "ops": other}))
    assert paths(known, job(gpus=gpus, preemptible=False)) == refused
