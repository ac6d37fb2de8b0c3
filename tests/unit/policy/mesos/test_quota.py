"""Limits and weights of roles that follow from a tree: Mesos never refuses what the tree allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.tenancy import Guarantee, Pool, QueueDocument, QueueSpec
from mesos_gpu.policy.mesos.quota import Wanted, in_all_hours, promised, wanted

NODES = {"default": {"T4": 8}, "big": {"A100": 16}}


def tree(**queues: QueueSpec) -> QueueDocument:
    return QueueDocument(1, queues=queues, pools=(Pool("big", models=("A100",)),), gpu_cost={"A100": 4})


def owed(pool: str, cost: int, **more: object) -> QueueSpec:
    return QueueSpec(guarantee_gpus={pool: Guarantee(cost * 1000)}, **more)  # type: ignore[arg-type]


def by_role(made: list[Wanted]) -> dict[str, tuple[int | None, float | None]]:
    return {each.role: (each.limit_gpus, each.weight) for each in made}


def test_queue_without_a_limit_leaves_its_role_without_one() -> None:
    document = tree(prod=owed("big", 32, weight=3), dev=QueueSpec(limit_gpus={"default": 4000}))
    made = wanted(document, NODES, "gpu", {"prod": "prod"}, ["spark"])
    assert by_role(made) == {"gpu": (None, 2.0), "prod": (None, 3.0), "spark": (16, None)}
    assert made[0].why == "nothing limits default", "the queue of jobs that name none"


def test_limits_count_gpus_and_what_is_in_no_limit_is_all_there_is() -> None:
    document = tree(
        prod=QueueSpec(limit_gpus={"big": 34_000}), default=QueueSpec(limit_gpus={"default": 0, "big": 0})
    )
    assert by_role(wanted(document, NODES, "gpu", {"prod": "prod"}, [])) == {
        "gpu": (0, 1.0),
        "prod": (8 + 8, 1.0),  # 34 of cost are 8 GPUs of cost 4
    }


def test_role_limit_counts_the_borrow_limit() -> None:
    spec = owed("big", 8, borrow_limit_gpus={"big": 8000, "default": 0})
    assert by_role(wanted(tree(prod=spec), NODES, "gpu", {"prod": "p"}, []))["p"] == (4, 1.0)


def test_role_of_ours_is_no_other_one() -> None:
    assert [each.role for each in wanted(tree(), NODES, "gpu", {}, ["gpu", "*"])] == ["gpu", "*"]


def test_queues_that_weigh_nothing_are_no_others() -> None:
    made = wanted(tree(prod=QueueSpec(weight=0)), NODES, "gpu", {"prod": "p"}, ["spark"])
    assert [(each.role, each.weight, each.of_others) for each in made] == [
        ("gpu", 1.0, False),
        ("p", None, False),
        ("spark", None, True),
    ]


def test_queue_that_is_not_there_is_no_queue() -> None:
    with pytest.raises(KeyError):
        wanted(tree(), NODES, "gpu", {"prod": "p"}, [])


@given(st.integers(0, 200), st.integers(0, 30), st.integers(1, 9))
def test_role_limits_leave_guarantees_to_their_queues(cost: int, there: int, price: int) -> None:
    document = QueueDocument(1, queues={"a": owed("default", cost)}, gpu_cost={"X": price})
    kept = promised(document, {"default": {"X": there}}, document.queues["a"])
    assert kept <= there
    assert kept == there or kept * price >= cost
    (_, others) = wanted(document, {"default": {"X": there}}, "gpu", {}, ["*"])
    assert others.limit_gpus == there - kept


def test_limits_hold_at_all_hours() -> None:
    day = tree(prod=owed("big", 32, limit_gpus={"big": 32_000, "default": 0}))
    night = tree(prod=owed("big", 64, limit_gpus={"big": 64_000, "default": 0}))
    plans = [wanted(each, NODES, "gpu", {"prod": "prod"}, ["spark"]) for each in (day, night)]
    assert by_role(in_all_hours(plans, ["spark"])) == {
        "gpu": (None, 1.0),
        "prod": (16, 1.0),
        "spark": (8, None),
    }
    assert in_all_hours(plans[:1], ["spark"]) == plans[0]


def test_roles_are_told_in_full_with_their_reasons() -> None:
    queues = {
        "b": QueueSpec(limit_gpus={"default": 3000, "big": 0}),
        "a": QueueSpec(limit_gpus={"default": 2500, "big": 7999}, weight=2),
        "default": QueueSpec(limit_gpus={"default": 1000, "big": 4000}),
        "z": QueueSpec(guarantee_gpus={"default": Guarantee(1000)}, limit_gpus={"default": 1000, "big": 0}),
    }
    made = wanted(tree(**queues), NODES, "gpu", {"b": "rb", "a": "ra"}, ["spark", "kafka", "ra"])
    why = "24 GPUs, of which queues are guaranteed 1"
    assert made == [
        Wanted("gpu", 1 + 1 + 1, 2.0, "limits of default, z"),
        Wanted("ra", 2 + 1, 2.0, "limits of a"),
        Wanted("rb", 3, 1.0, "limits of b"),
        Wanted("kafka", 23, None, why, of_others=True),
        Wanted("spark", 23, None, why, of_others=True),
    ]


def test_role_of_no_queue_has_no_weight_and_no_limit() -> None:
    document = QueueDocument(1, queues={"a": QueueSpec()})
    (none, _) = wanted(document, NODES, "gpu", {"a": "ra", "default": "rd"}, [])[:2]
    assert none == Wanted("gpu", None, None, "every queue has a role of its own")


def test_roles_of_others_have_nothing_where_all_is_promised() -> None:
    document = QueueDocument(1, queues={"a": owed("default", 5), "b": owed("default", 9)})
    made = wanted(document, {"default": {"T4": 8}}, "gpu", {}, ["spark"])
    why = "8 GPUs, of which queues are guaranteed 8"
    assert made[-1] == Wanted("spark", 0, None, why, of_others=True)


@pytest.mark.parametrize(
    ("milli", "models", "gpus"),
    [
        (1, {"T4": 8}, 1),
        (1000, {"T4": 8}, 1),
        (1001, {"T4": 8}, 2),
        (9000, {"T4": 8}, 8),
        (4001, {"A100": 8}, 2),
        (4001, {"A100": 8, "T4": 1}, 5),
        (1000, {}, 0),
    ],
)
def test_promise_is_of_as_many_gpus_as_it_could_be(milli: int, models: dict[str, int], gpus: int) -> None:
    spec = QueueSpec(guarantee_gpus={"default": Guarantee(milli), "none": Guarantee(5000)})
    assert repr(promised(tree(), {"default": models}, spec)) == str(gpus)


def test_limit_of_all_there_is_is_none() -> None:
    document = QueueDocument(1, queues={"a": QueueSpec(limit_gpus={"default": 8000})})
    assert by_role(wanted(document, {"default": {"T4": 8}}, "gpu", {"a": "a"}, []))["a"] == (None, 1.0)
    assert by_role(wanted(document, {"default": {"T4": 9}}, "gpu", {"a": "a"}, []))["a"] == (8, 1.0)
    assert by_role(wanted(document, {"default": {"T4": 7}}, "gpu", {"a": "a"}, []))["a"] == (None, 1.0)


def test_reasons_at_all_hours_are_those_of_the_hour_that_decides() -> None:
    def plan(*limits: int | None) -> list[Wanted]:
        return [
            Wanted(role, limit, float(n), f"{role} {limit}", of_others=role == "o")
            for n, (role, limit) in enumerate(zip(("q", "o"), limits, strict=True))
        ]

    plans = [plan(2, 9), plan(5, 7), plan(3, 8)]
    assert in_all_hours(plans, ["o"]) == [
        Wanted("q", 5, 0.0, "q 5"),
        Wanted("o", 7, 1.0, "o 7", of_others=True),
    ]
    free = in_all_hours([plan(2, None), plan(None, 7)], ["o"])
    assert [(each.limit_gpus, each.why) for each in free] == [(None, "q None"), (7, "o 7")]
