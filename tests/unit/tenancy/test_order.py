"""The line of all jobs against the plain rule: of all first jobs, the one that no other one comes before."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.order import Entry, Line, Rank
from mesos_gpu.policy.tenancy.tree import lineage

CHILDREN = {"": ["a", "b", "c"], "a": ["a/x", "a/y"], "a/x": ["a/x/1", "a/x/2"], "b": ["b/x", "b/y"]}
LEAVES = ["a/x/1", "a/x/2", "a/y", "b/x", "b/y", "c"]
PATHS = [path for paths in CHILDREN.values() for path in paths]
POOLS = ["default", "t4"]
JOBS = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(list(Rank)), st.sampled_from(POOLS), st.integers(0, 3),
        st.booleans(),
    ),
    max_size=4,
)  # fmt: skip
DUES = st.fixed_dictionaries({(path, pool): st.integers(0, 8) for path in PATHS for pool in POOLS})
Dues = dict[tuple[str, str], int]


class Held:
    def __init__(self, start: dict[str, int]) -> None:
        self.milli = Counter[tuple[str, str]]()
        self.revision = 0
        for leaf, milli in start.items():
            self.add(leaf, POOLS[milli % 2], milli)

    def add(self, leaf: str, pool: str, milli: int) -> None:
        self.revision += 1
        for path in (*lineage(leaf), ""):
            self.milli[path, pool] += milli

    def amount(self, path: str, pool: str) -> int:
        return self.milli[path, pool]


def place(path: str, entry: Entry[str], dues: Dues, held: Held) -> tuple[object, ...]:
    if entry.rank in (Rank.ROOM_MADE, Rank.STARVING):
        return entry.rank, entry.since, entry.goes
    due, would = dues[path, entry.pool], held.amount(path, entry.pool) + entry.cost_milli
    return (entry.rank, 0, Fraction(would, due)) if due else (entry.rank, 1, Fraction(would))


def best(path: str, firsts: dict[str, Entry[str]], dues: Dues, held: Held) -> str | None:
    """The best leaf of each child, compared as the children are."""
    if path in firsts:
        return path
    given = [(child, leaf) for child in CHILDREN.get(path, ()) if (leaf := best(child, firsts, dues, held))]
    return min(given, key=lambda item: place(item[0], firsts[item[1]], dues, held))[1] if given else None


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_line_gives_each_job_when_it_is_the_best(count: int) -> None:
    @settings(max_examples=count)
    @given(
        st.fixed_dictionaries(dict.fromkeys(LEAVES, JOBS)),
        DUES,
        st.fixed_dictionaries({leaf: st.integers(0, 3) for leaf in LEAVES}),
        st.randoms(use_true_random=False),
    )
    def check(jobs, dues, start, random) -> None:  # type: ignore[no-untyped-def]
        named = {
            leaf: [Entry(f"{leaf}#{i}", *each) for i, each in enumerate(entries)]
            for leaf, entries in jobs.items()
        }
        held, left = Held(start), {leaf: list(entries) for leaf, entries in named.items()}
        given_out = []
        for job in Line(CHILDREN, lambda path, pool: dues[path, pool], held, named):
            firsts = {leaf: entries[0] for leaf, entries in left.items() if entries}
            leaf = job.split("#")[0]
            entry = left[leaf].pop(0)
            assert entry.job == job
            assert leaf == best("", firsts, dues, held)
            given_out.append(job)
            if random.random() < 0.4:
                held.add(leaf, random.choice(POOLS), entry.cost_milli)
        assert sorted(given_out) == sorted(entry.job for entries in named.values() for entry in entries)

    check()
