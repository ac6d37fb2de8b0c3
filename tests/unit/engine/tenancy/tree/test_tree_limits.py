"""Limits of queues and users, and classes: what is refused, and what waits, and why."""

from math import inf

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.step import step
from mesos_gpu.errors import Conflict, NotAccepted, TooMuch
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.why import Stage, Why
from mesos_gpu.model.tenancy import Guarantee, JobClass, Limits, Pool, QueueSpec, Shape, Stop
from tests.doubles.builders import World, spec
from tests.unit.engine.tenancy.worlds import again, apply, most, node, owed, running, submit_all, tree_world

LAB = {"lab": QueueSpec(), "lab/a": QueueSpec(), "lab/b": QueueSpec()}


def why(world: World, name: str) -> Why:
    return why_of(world.state, world.settings, world.now, world.job(name))


def stage(world: World, name: str) -> Stage:
    return why(world, name).funnel[-1].reason


def refusal(world: World, **fields: object) -> list[tuple[str, str]]:
    with pytest.raises(NotAccepted) as told:
        step(world.state, ev.JobSubmitted(JobId("no"), spec(**fields)), world.now, world.settings)
    assert "no" not in world.state.work.jobs
    return list(told.value.faults)


REFUSED = {
    "no such queue": ({}, {"queue": "x"}, "/queue", "there is no queue x; there are default, lab/a, lab/b"),
    "no leaf": ({}, {"queue": "lab"}, "/queue", "queue lab takes no jobs; name one below it: lab/a, lab/b"),
    "GPUs of one job": (
        {"lab": Limits(max_gpus_per_job=2)},
        {"gpus": 2, "tasks": 2},
        "/gpus",
        "max_gpus_per_job of queue lab is 2 GPUs, and it asks for 4 GPUs",
    ),
    "GPUs of all": (
        {"lab/a": Limits(max_gpus=3)},
        {"gpus": 4},
        "/gpus",
        "max_gpus of queue lab/a is 3 GPUs, and it asks for 4 GPUs",
    ),
    "time": (
        {"lab": Limits(max_timeout_s=60)},
        {"timeout_s": 61.0},
        "/timeout_s",
        "max_timeout_s of queue lab is 60, and it asks for 61 s",
    ),
    "no time limit": (
        {"lab": Limits(max_timeout_s=60)},
        {},
        "/timeout_s",
        "max_timeout_s of queue lab is 60, and it has no time limit: set timeout_s",
    ),
    "priority": (
        {"lab": Limits(max_priority=5)},
        {"priority": 6},
        "/priority",
        "max_priority of queue lab is 5, and it asks for 6",
    ),
    "nothing runs": (
        {"lab": Limits(max_running=0)}, {}, "/queue", "max_running of queue lab is 0: no job of it starts"
    ),
    "no such class": ({}, {"job_class": "x"}, "/class", "there is no class x; there are none"),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "asked", "path", "reason"), REFUSED.values(), ids=REFUSED)
def test_job_beyond_a_limit_of_its_tree_is_refused(
    limits: dict[str, Limits], asked: dict[str, object], path: str, reason: str
) -> None:
    world = tree_world({**LAB, **{path: QueueSpec(limits=each) for path, each in limits.items()}})
    assert refusal(world, **{"queue": "lab/a", **asked}) == [(path, reason)]


def test_refusal_of_a_job_names_all_its_faults() -> None:
    world = tree_world(
        {**LAB, "lab": QueueSpec(limits=Limits(max_gpus=1, max_priority=0), limit_gpus=most(1))}
    )
    assert [path for path, _ in refusal(world, queue="lab/a", gpus=2, priority=1)] == [
        "/gpus",
        "/priority",
        "/gpus",
    ]


def test_class_gives_what_its_jobs_leave_open_and_says_which_queues_it_is_for() -> None:
    classes = (JobClass("night", priority=7, preemptible=True, max_timeout_s=100.0, queues=("lab/*",)),)
    world = tree_world({**LAB, "other": QueueSpec()}, classes=classes)
    world.submit("j", queue="lab/a", job_class="night", timeout_s=99.0)
    assert (world.job("j").spec.priority, world.job("j").spec.preemptible) == (7, True)
    for asked in (3, 0):
        world.submit(f"own{asked}", queue="lab/a", job_class="night", timeout_s=99.0, priority=asked)
        assert world.job(f"own{asked}").spec.priority == asked
    assert refusal(world, queue="other", job_class="night", timeout_s=1.0) == [
        ("/class", "class night is for queues lab/*, not for other")
    ]
    assert refusal(world, queue="lab/b", job_class="night") == [
        ("/timeout_s", "max_timeout_s of class night is 100, and it has no time limit: set timeout_s")
    ]


def test_queue_gives_what_its_jobs_leave_open() -> None:
    world = tree_world({"lab": QueueSpec(default_timeout_s=60.0, default_priority=4), "lab/a": QueueSpec()})
    world.submit("j", queue="lab/a")
    assert (world.job("j").spec.timeout_s, world.job("j").spec.priority) == (60.0, 4)
    world.submit("zero", queue="lab/a", priority=0)
    assert world.job("zero").spec.priority == 0, "it was asked for"


def test_limit_of_waiting_jobs_is_kept() -> None:
    world = tree_world({**LAB, "lab": QueueSpec(limits=Limits(max_submitted=2))})
    world.submit("a", queue="lab/a")
    world.submit("b", queue="lab/b")
    with pytest.raises(TooMuch, match="max_submitted of queue lab is 2, and as many jobs wait or run"):
        world.submit("c", queue="lab/a")
    world.feed(ev.KillRequested(JobId("a")))
    world.submit("c", queue="lab/a")


@pytest.mark.parametrize(
    ("limits", "told", "words"),
    [
        (
            {"lab": QueueSpec(limits=Limits(max_running=1))},
            Stage.QUEUE_LIMIT,
            "queue lab may have 1 job that run, and has 1",
        ),
        ({"lab": QueueSpec(limit_gpus=most(1))}, Stage.QUEUE_LIMIT, "queue lab may hold 1 GPU, and holds 1"),
        (
            {"lab/a": QueueSpec(users={"*": Limits(max_gpus=1)})},
            Stage.USER_LIMIT,
            "user ann in queue lab/a may hold 1 GPU, and holds 1",
        ),
    ],
)
def test_explanation_names_the_limit_that_a_job_waits_for(
    limits: dict[str, QueueSpec], told: Stage, words: str
) -> None:
    world = tree_world({**LAB, **limits})
    submit_all(world, ("one", "lab/a", 1), ("two", "lab/a", 1), user="ann")
    node(world, "n1", 4)
    assert running(world) == {"one"}
    again(world, "n1", 3)
    assert stage(world, "two") is told
    assert why(world, "two").summary.endswith(words)
    world.status("one.1", "TASK_FINISHED", agent="n1")
    again(world, "n1", 4)
    assert running(world) == {"two"}


def test_user_s_limit_does_not_stop_others_of_the_queue() -> None:
    world = tree_world({"lab": QueueSpec()}, users={"ann": Limits(max_running=1)})
    submit_all(world, ("a1", "lab", 1), ("a2", "lab", 1), user="ann")
    submit_all(world, ("b1", "lab", 1), ("b2", "lab", 1), user="bob")
    node(world, "n1", 4)
    assert running(world) == {"a1", "b1", "b2"}


def test_queue_on_hold_starts_nothing() -> None:
    world = tree_world({**LAB, "lab": QueueSpec(stop=Stop.HOLD)})
    submit_all(world, ("a", "lab/a", 1))
    node(world, "n1", 4)
    assert running(world) == set()
    assert (stage(world, "a"), why(world, "a").summary) == (
        Stage.HOLD,
        "waits for its queue: queue lab is on hold",
    )
    apply(world, LAB)
    again(world, "n1", 4)
    assert running(world) == {"a"}


def test_non_preemptible_job_borrows_only_if_it_ends_in_time() -> None:
    world = tree_world({"dev": QueueSpec(borrow_for_s=100.0), "prod": QueueSpec(guarantee_gpus=owed(1))})
    submit_all(world, ("stays", "prod", 1), ("more", "prod", 1))
    submit_all(world, ("short", "dev", 1), timeout_s=95.0)
    submit_all(world, ("yields", "dev", 1), preemptible=True)
    submit_all(world, ("cpu", "dev", 0))
    node(world, "n1", 8)
    assert running(world) == {"stays", "short", "yields", "cpu"}
    again(world, "n1", 5)
    assert stage(world, "more") is Stage.GUARANTEE
    assert why(world, "more").summary.endswith("is guaranteed; nothing of that is free for it")


NEVER = "queue dev has no guarantee, and only preemptible jobs start without one: make it preemptible"
IN_PROD = ", or use a queue whose guarantee has room for it, as prod"


@pytest.mark.parametrize(
    ("lends_s", "timeout_s", "or_else"),
    [
        (100.0, 96.0, ", or give it a time limit of at most 95 s (borrow_for_s)"),
        (100.0, None, ", or give it a time limit of at most 95 s (borrow_for_s)"),
        (0.0, 60.0, ""),
    ],
)
def test_non_preemptible_job_is_refused_without_a_guarantee(
    lends_s: float, timeout_s: float | None, or_else: str
) -> None:
    world = tree_world({"dev": QueueSpec(borrow_for_s=lends_s), "prod": QueueSpec(guarantee_gpus=owed(1))})
    said = [("/preemptible", f"{NEVER}{or_else}{IN_PROD}")]
    assert refusal(world, queue="dev", gpus=1, timeout_s=timeout_s) == said


@pytest.mark.parametrize(("gpus", "tasks"), [(3, 1), (2, 3), (1, 5)])
def test_non_preemptible_job_larger_than_its_guarantee_is_refused(gpus: int, tasks: int) -> None:
    world = tree_world({"prod": QueueSpec(guarantee_gpus={"default": Guarantee(4000, (Shape(2, 2),))})})
    never = (
        "the guarantee of queue prod has no room for it even when all of it is free, and only preemptible jobs "
        "start without one: make it preemptible"
    )
    assert refusal(world, queue="prod", gpus=gpus, tasks=tasks) == [("/preemptible", never)]
    submit_all(world, ("fits", "prod", 2), tasks=2)
    apply(world, {"prod": QueueSpec(guarantee_gpus=owed(3))})
    node(world, "n1", 8)
    assert stage(world, "fits") is Stage.GUARANTEE
    assert why(world, "fits").summary.endswith(never)
    submit_all(world, ("yields", "prod", gpus), tasks=tasks, preemptible=True)


def test_non_preemptible_job_is_refused_without_a_guarantee_in_its_pools() -> None:
    pools = (Pool("new", models=("H100",)), Pool("old", models=("T4",)))
    classes = (JobClass("cheap", preemptible=False, pools=("old",)),)
    lab = QueueSpec(guarantee_gpus={"new": Guarantee(2000)})
    world = tree_world({"lab": lab}, pools=pools, classes=classes)
    never = (
        "queue lab has no guarantee of pool {}, which it may use, and only preemptible jobs start without one: make it "
        "preemptible"
    )
    assert refusal(world, queue="lab", gpus=1, job_class="cheap") == [("/preemptible", never.format("old"))]
    of_model = [("/preemptible", never.format("default or old"))]
    assert refusal(world, queue="lab", gpus=1, gpu_model=("T4",)) == of_model
    assert refusal(world, queue="lab", gpus=1, job_class="cheap", gpu_model=("H100",)) == [
        ("/gpu_model", "class cheap is for pools old, and none of them has H100")
    ]
    submit_all(world, ("fits", "lab", 2))
    submit_all(world, ("either", "lab", 1), gpu_model=("T4", "H100"))
    submit_all(world, ("yields", "lab", 1), gpu_model=("T4",), preemptible=True)


def test_plain_job_without_a_queue_starts_beside_guarantees_until_the_document_names_default() -> None:
    prod = QueueSpec(guarantee_gpus=owed(2))
    world = tree_world({"prod": prod})
    submit_all(world, ("plain", "default", 1))
    node(world, "n1", 2)
    assert running(world) == {"plain"}
    apply(world, {"prod": prod, "default": QueueSpec()})
    (refused,) = refusal(world, queue="default", gpus=1)
    assert refused[1].startswith("queue default has no guarantee")
    assert running(world) == {"plain"}


def test_explanation_advises_a_job_that_lost_its_guarantee_by_a_new_document() -> None:
    world = tree_world({"dev": QueueSpec(guarantee_gpus=owed(1)), "prod": QueueSpec(guarantee_gpus=owed(1))})
    submit_all(world, ("stays", "dev", 1))
    apply(world, {"dev": QueueSpec(), "prod": QueueSpec(guarantee_gpus=owed(1))})
    node(world, "n1", 8)
    assert (running(world), stage(world, "stays")) == (set(), Stage.GUARANTEE)
    assert why(world, "stays").summary.endswith(f"{NEVER}{IN_PROD}")


def test_lend_limit_keeps_gpus_idle() -> None:
    keeps = QueueSpec(guarantee_gpus=owed(3), lend_limit_gpus=most(1))
    world = tree_world({"keeps": keeps, "dev": QueueSpec()})
    submit_all(world, *((f"d{i}", "dev", 1) for i in range(4)), preemptible=True)
    node(world, "n1", 4)
    assert running(world) == {"d0", "d1"}
    again(world, "n1", 2)
    assert stage(world, "d2") is Stage.GUARANTEE
    submit_all(world, ("k0", "keeps", 2))
    world.tick(1)
    assert running(world) == {"d0", "d1", "k0"}


def test_pools_have_limits_of_their_own_and_classes_have_pools() -> None:
    pools = (Pool("new", models=("H100",)),)
    classes = (JobClass("old-only", pools=("default",)),)
    queues = {"lab": QueueSpec(limit_gpus={"new": 1000})}
    world = tree_world(queues, pools=pools, classes=classes)
    node(world, "n1", 4, "H100")
    submit_all(world, ("o", "lab", 1), job_class="old-only")
    submit_all(world, ("a", "lab", 1), ("b", "lab", 1))
    again(world, "n1", 4)
    assert running(world) == {"a"}
    node(world, "n2", 4, "T4")
    again(world, "n2", 4)
    assert running(world) == {"a", "b", "o"}
    assert [str(world.state.work.tasks[f"{name}.1"].agent_id) for name in "abo"] == ["n1", "n2", "n2"]  # type: ignore[index]


def test_limits_of_the_command_line_stand_beside_a_document_that_lacks_their_queue() -> None:
    limits = {"old": 2, "lab": 1}
    settings = Settings.of("e", "m", report_stale_s=1e9, aging_step_s=inf, queue_limits=limits)
    queues = {"lab": QueueSpec(limit_gpus=most(3)), "prod": QueueSpec(guarantee_gpus=owed(1))}
    world = tree_world(queues, settings=settings)
    submit_all(
        world, *((f"{name}{i}", name, 1) for name in ("lab", "old") for i in range(5)), preemptible=True
    )
    submit_all(world, ("p", "prod", 1))
    node(world, "n1", 8)
    assert running(world) == {"lab0", "lab1", "lab2", "old0", "old1", "p"}, (
        "where both have one, the document counts"
    )
    again(world, "n1", 2)
    assert why(world, "old2").summary.endswith("queue old may hold 2 GPUs, and holds 2")
    assert refusal(world, queue="old", gpus=3, preemptible=True) == [
        ("/gpus", "limit_gpus of queue old is 2 GPUs, and it asks for 3 GPUs")
    ]
    submit_all(world, ("d", "default", 1), preemptible=True)
    with pytest.raises(Conflict, match="default"):
        apply(world, {**queues, "default": QueueSpec(), "default/below": QueueSpec()})
    apply(world, {**queues, "old": QueueSpec(limit_gpus=most(3))})
    again(world, "n1", 2)
    assert "old2" in running(world), "the document has it now"
