"""The document of queues as JSON: what is written is read as it was, and nothing wrong is taken."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.adapters.files.text import BadFile
from mesos_gpu.adapters.files.versioned import QUEUES
from mesos_gpu.model.jobs.fields import (
    Constraints,
    Flag,
    Kind,
    Models,
    Number,
    OneOf,
    SomeOf,
    Strings,
    Text,
    Whole,
    entry,
)
from mesos_gpu.model.tenancy import (
    BUDGET_FIELDS,
    CLASS_FIELDS,
    HOURS_FIELDS,
    IDLE_FIELDS,
    LIMIT_FIELDS,
    POOL_FIELDS,
    Budgets,
    BudgetsByUser,
    GpuHours,
    Guarantees,
    HoursOfWeek,
    IdleRules,
    LimitsByUser,
    Names,
    Percents,
    PerPool,
    QueueDocument,
    Runtimes,
    Weights,
)
from mesos_gpu.wire.tenancy.document import SPEC_FIELDS, decode, encode, with_queue, without_queue

POOLS = ("default", "a100", "t4")
MILLI = st.integers(0, 64_000).map(lambda milli: milli / 1000)
SHAPES = st.lists(
    st.fixed_dictionaries({"nodes": st.integers(1, 4), "gpus": st.integers(1, 8)}), min_size=1, max_size=3
)
USERS = st.sampled_from(["*", "ann", "bob@corp"])


def amounts(figure: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return figure | st.dictionaries(st.sampled_from(POOLS), figure, min_size=1)


def numbers(kind: Any) -> st.SearchStrategy[Any]:
    least, most = kind.least + (1 if getattr(kind, "above", False) else 0), min(kind.most, 10**6)
    return st.integers(int(least), int(most)) if isinstance(kind, Whole) else st.floats(least, most)


def texts(kind: Any) -> st.SearchStrategy[str]:
    return st.sampled_from(
        [text for text in ("UTC", "Europe/Vienna") if kind.pattern.fullmatch(text)] or [""]
    )


def fields(declared: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields; texts that only some periods have are left out."""
    known = {
        field.key: entry(VALUES, field.kind)(field.kind)
        for field in declared
        if field.key not in ("from", "to", "period")
    }
    return st.fixed_dictionaries({}, optional=known)


VALUES: dict[type[Kind], Any] = {
    Text: texts,
    Number: numbers,
    Flag: lambda _: st.booleans(),
    OneOf: lambda kind: st.sampled_from([each.value for each in kind.of]),
    Constraints: lambda _: st.sampled_from([[], [["rack", "LIKE", "r[12]"], ["hostname", "UNLIKE", "x.*"]]]),
    Models: lambda _: st.sampled_from([["A100"], ["T4", "L4"]]),
    Strings: lambda _: st.just({"rack": "r1"}),
    PerPool: lambda _: amounts(MILLI),
    Guarantees: lambda _: amounts(MILLI | SHAPES),
    Runtimes: lambda _: st.fixed_dictionaries({}, optional={"reclaim": st.floats(0, 9e5)}),
    Weights: lambda _: st.dictionaries(USERS, st.integers(0, 1000)),
    LimitsByUser: lambda _: st.dictionaries(USERS, fields(LIMIT_FIELDS)),
    Budgets: lambda _: budgets(),
    BudgetsByUser: lambda _: st.dictionaries(USERS, budgets()),
    IdleRules: lambda _: fields(IDLE_FIELDS).map(
        lambda made: {**made, "return_after_s": made.get("warn_after_s", 1800) + 1}
    ),
    GpuHours: lambda _: st.integers(0, 10**6) | st.just(0.25),
    Percents: lambda _: st.sets(st.integers(1, 200), max_size=4).map(sorted),
    SomeOf: lambda kind: st.lists(st.sampled_from([each.value for each in kind.of]), min_size=1, unique=True),
    HoursOfWeek: lambda _: st.lists(hours(), max_size=2),
    Names: lambda kind: st.just([name for name in ("a100",) if kind.pattern.fullmatch(name)]),
}


def budgets() -> st.SearchStrategy[Any]:
    return fields(BUDGET_FIELDS).map(lambda made: {"gpu_hours": 1, **made})


def hours() -> st.SearchStrategy[Any]:
    return fields(HOURS_FIELDS).map(lambda made: {**made, "from": "22:00", "to": "06:00"})


PATHS = st.sets(st.sampled_from(["default", "a", "a/b", "a/b/c", "a/d", "e"])).map(
    lambda paths: sorted({"/".join(path.split("/")[:n]) for path in paths for n in (1, 2, 3)})
)


QUEUE, POOL, CLASS, LIMITS = map(fields, (SPEC_FIELDS, POOL_FIELDS, CLASS_FIELDS, LIMIT_FIELDS))


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    queues = {path: draw(QUEUE) for path in draw(PATHS)}
    return {
        "version": draw(st.integers(0, 9)),
        "comment": draw(st.sampled_from(["", "why"])),
        "queues": queues,
        "pools": {pool: draw(POOL) for pool in POOLS[1:]},
        "classes": {"batch": draw(CLASS)},
        "gpu_cost": {"A100": draw(st.integers(1, 9))},
        "users": draw(st.dictionaries(USERS, LIMITS)),
        "fairness": draw(st.sampled_from(["gpus", "drf"])),
        "history_percent": draw(st.integers(0, 100)),
    }


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.long)])
def test_queue_document_is_read_back_as_it_was(count: int) -> None:
    @settings(max_examples=count)
    @given(documents())
    def check(value: dict[str, Any]) -> None:
        made = decode(value)
        if isinstance(made, list):  # figures that do not fit together: of that the other tests
            assert {problem.path.split("/")[1] for problem in made} == {"queues"}
            return
        written = json.loads(json.dumps(encode(made)))
        again = decode(written)
        assert again == made
        assert isinstance(again, QueueDocument)
        assert encode(again) == encode(made)

    check()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("count", [50, pytest.param(100, marks=pytest.mark.long)])
def test_queue_document_with_an_odd_field_has_a_problem_with_its_place(count: int) -> None:
    @settings(max_examples=count)
    @given(st.sampled_from(SPEC_FIELDS), ANYTHING)
    def check(field: Any, value: Any) -> None:
        made = decode({"queues": {"a": {field.key: value}}})
        if isinstance(made, list):
            assert all(problem.path.startswith("/queues/a/") for problem in made)
        else:
            assert decode(encode(made)) == made

    check()


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_queue_document_with_an_odd_top_field_has_a_problem(count: int) -> None:
    @settings(max_examples=count)
    @given(
        st.sampled_from(["queues", "pools", "classes", "gpu_cost", "users", "fairness", "overbook"]), ANYTHING
    )
    def check(key: str, value: Any) -> None:
        made = decode({key: value})
        if isinstance(made, list):
            assert all(problem.path.startswith(f"/{key}") for problem in made)
        else:
            assert decode(encode(made)) == made

    check()


def problems(value: dict[str, Any]) -> dict[str, str]:
    made = decode(value)
    assert isinstance(made, list)
    return {problem.path: problem.reason for problem in made}


@pytest.mark.parametrize(
    ("queues", "place", "word"),
    [
        ({"a/b": {}}, "/queues/a~1b", "no queue a"),
        ({"default": {}, "default/a": {}}, "/queues/default~1a", "without queue"),
        ({"A": {}}, "/queues/A", "path"),
        ({"a": {"limit_gpus": 3, "guarantee_gpus": 4}}, "/queues/a/limit_gpus", "below the guarantee, 4"),
        (
            {"a": {"guarantee_gpus": 3}, "a/b": {"guarantee_gpus": 2}, "a/c": {"guarantee_gpus": 2}},
            "/queues/a/guarantee_gpus",
            "guaranteed 4",
        ),
        ({"a": {"guarantee_gpus": {"x": 1}}}, "/queues/a/guarantee_gpus/x", "pools are big, default"),
        ({"a": {"guarantee_gpus": [{"nodes": 2}]}}, "/queues/a/guarantee_gpus/0/gpus", "is missing"),
        ({"a": {"pools": []}}, "/queues/a/pools", "at least one pool"),
        ({"a": {"pools": ["x"]}}, "/queues/a/pools/0", "pools are big, default"),
        ({"a": {"pools": ["big"]}, "a/b": {"pools": ["default"]}}, "/queues/a~1b/pools/0", "it uses big"),
        (
            {"a": {"pools": ["big"]}, "a/b": {"guarantee_gpus": 1}},
            "/queues/a~1b/guarantee_gpus",
            "may not use pool default",
        ),
        ({"a": {"hours": [{"to": "06:00"}]}}, "/queues/a/hours/0/from", "is missing"),
        ({"a": {"hours": [{"from": "24:00", "to": "06:00"}]}}, "/queues/a/hours/0/from", "as 22:00"),
        ({"a": {"hours": [{"from": "06:00", "to": "06:00"}]}}, "/queues/a/hours/0/to", "00:00 and 24:00"),
        (
            {"a": {"hours": [{"from": "06:00", "to": "07:00", "days": []}]}},
            "/queues/a/hours/0/days",
            "at least one day",
        ),
        (
            {"a": {"hours": [{"from": "06:00", "to": "07:00", "zone": "Mars"}]}},
            "/queues/a/hours/0/zone",
            "no time zone Mars",
        ),
        (
            {"a": {"hours": [{"from": "06:00", "to": "07:00", "limit_gpus": {"x": 1}}]}},
            "/queues/a/hours/0/limit_gpus/x",
            "pools are big, default",
        ),
        ({"a": {"guarantee_gpus": 0.0005}}, "/queues/a/guarantee_gpus", "three decimals"),
        (
            {"a": {"default_timeout_s": 9, "max_timeout_s": 8}},
            "/queues/a/default_timeout_s",
            "above max_timeout_s, 8",
        ),
        ({"a": {"budget": {}}}, "/queues/a/budget/gpu_hours", "is missing"),
        (
            {"a": {"budget": {"gpu_hours": 1, "warn_at": [80, 80]}}},
            "/queues/a/budget/warn_at",
            "rising order",
        ),
        ({"a": {"budget": {"gpu_hours": 1, "zone": "Mars"}}}, "/queues/a/budget/zone", "no time zone Mars"),
        (
            {"a": {"budget": {"gpu_hours": 1, "from": "2026-11-22"}}},
            "/queues/a/budget/from",
            "for period once",
        ),
        (
            {"a": {"budget": {"gpu_hours": 1, "period": "once", "from": "2026-02-30", "to": "2026-03-01"}}},
            "/queues/a/budget/from",
            "no such day",
        ),
        (
            {"a": {"budget": {"gpu_hours": 1, "period": "once", "from": "2026-03-02", "to": "2026-03-01"}}},
            "/queues/a/budget/to",
            "not after",
        ),
    ],
)
def test_queue_document_fault_is_reported_with_its_place(
    queues: dict[str, Any], place: str, word: str
) -> None:
    reasons = problems({"queues": queues, "pools": {"big": {}}})
    assert word in reasons[place]


def test_pools_have_constraints_of_nodes_alone_and_some_are_dedicated() -> None:
    written = {"big": {"constraints": [["rack", "like", "r[12]"]], "dedicated": True}}
    made = decode({"pools": written, "queues": {"a": {"pools": ["big", "default"], "overflow_after_s": 60}}})
    assert isinstance(made, QueueDocument)
    assert encode(made)["pools"]["big"]["constraints"] == [["rack", "LIKE", "r[12]"]]
    said = problems({"pools": {"big": {"constraints": [["rack", "UNIQUE"], ["rack", "NEAR", "x"]]}}})
    assert "compares jobs" in said["/pools/big/constraints/0"]
    assert "unknown operator NEAR" in said["/pools/big/constraints/1"]
    unnamed = problems({"pools": written, "queues": {"a": {"guarantee_gpus": {"big": 1}}}})
    assert "may not use pool big" in unnamed["/queues/a/guarantee_gpus"]


def test_queue_is_changed_alone() -> None:
    made = decode({"queues": {"a": {"weight": 3, "limit_gpus": 8}}})
    assert isinstance(made, QueueDocument)
    patched = with_queue(made, "a", {"weight": None, "band": 1}, is_patch=True)
    assert isinstance(patched, QueueDocument)
    spec = patched.queues["a"]
    assert (spec.weight, spec.band, dict(spec.limit_gpus)) == (1, 1, {"default": 8000})
    put = with_queue(patched, "a/b", {"guarantee_gpus": 1}, is_patch=False)
    assert isinstance(put, list)
    assert put[0].path == "/queues/a/guarantee_gpus"
    put = with_queue(patched, "a/b", {}, is_patch=False)
    assert isinstance(put, QueueDocument)
    left = without_queue(put, "a")
    assert isinstance(left, list)
    assert left[0].path == "/queues/a~1b"


DOCS = Path(__file__).parents[3] / "docs"


#: Their examples are jobs and apps, which tests/e2e/local/test_pages.py runs.
WITHOUT_QUEUES = ("kubectl", "marathon", "sky")
PAGES = [
    DOCS / "many-teams.md",
    *(page for page in sorted((DOCS / "coming-from").glob("*.md")) if page.stem not in WITHOUT_QUEUES),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_pages_are_documents(page: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    documents = [text for text in examples if "queues:" in text]  # others are files of jobs
    assert documents
    for text in documents:
        assert QUEUES.read(text, page.name).document.queues


def test_problems_of_a_file_are_told_with_their_lines() -> None:
    with pytest.raises(BadFile) as caught:
        QUEUES.read("# ours\nqueues:\n  a: {weight: 2}\n  b:\n    weight: -1\n    extra: 1\n", "queues.yaml")
    assert "  line 5, /queues/b/weight: must be" in str(caught.value)
    assert "  line 6, /queues/b/extra: unknown field" in str(caught.value)


def test_queue_document_of_the_page_is_valid() -> None:
    text = (DOCS / "examples/queues.yaml").read_text(encoding="utf-8")
    read = QUEUES.read(text, "queues.yaml").document
    assert [*read.queues] == ["default", "production", "research", "research/students", "research/vision"]
