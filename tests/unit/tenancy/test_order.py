"""The line of all jobs against the plain rule: of all first jobs, the one that no other one comes before."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.order import Entry, Line, Standing
from mesos_gpu.policy.tenancy.tree import lineage

CHILDREN = {"": ["a", "b", "c"], "a": ["a/x", "a/y"], "a/x": ["a/x/1", "a/x/2"], "b": ["b/x", "b/y"]}
LEAVES = ["a/x/1", "a/x/2", "a/y", "b/x", "b/y", "c"]
PATHS = [path for paths in CHILDREN.values() for path in paths]
JOBS = st.lists(
    st.builds(Entry, st.just(""), st.integers(0, 4), st.sampled_from([False, False, False, True])), max_size=4
)
STANDINGS = st.fixed_dictionaries(
    {path: st.builds(Standing, st.integers(0, 8), st.integers(0, 8)) for path in PATHS}
)


class Held:
    def __init__(self, start: dict[str, int]) -> None:
        self.milli = Counter[str]()
        for leaf, milli in start.items():
            self.add(leaf, milli)

    def add(self, leaf: str, milli: int) -> None:
        for path in (*lineage(leaf), ""):
            self.milli[path] += milli

    def __call__(self, path: str) -> int:
        return self.milli[path]


def inside(leaf: str, entry: Entry[str], standings: dict[str, Standing], held: Held) -> bool:
    return all(held(path) + entry.cost_milli <= standings[path].guarantee for path in lineage(leaf))


def part(path: str, entry: Entry[str], standings: dict[str, Standing], held: Held) -> tuple[int, Fraction]:
    due, would = standings[path].due, held(path) + entry.cost_milli
    return (0, Fraction(would, due)) if due else (1, Fraction(would))


def best(path: str, firsts: dict[str, Entry[str]], standings: dict[str, Standing], held: Held) -> str | None:
    """The best leaf of each child, compared as the children are."""
    if path in firsts:
        return path
    given = [
        (child, leaf) for child in CHILDREN.get(path, ()) if (leaf := best(child, firsts, standings, held))
    ]

    def place(item: tuple[str, str]) -> tuple[object, ...]:
        entry = firsts[item[1]]
        if entry.room_made:
            return (0,)
        outside = not inside(item[1], entry, standings, held)
        return (1 + outside, *part(item[0], entry, standings, held))

    return min(given, key=place)[1] if given else None


@given(
    st.fixed_dictionaries(dict.fromkeys(LEAVES, JOBS)),
    STANDINGS,
    st.fixed_dictionaries({leaf: st.integers(0, 3) for leaf in LEAVES}),
    st.randoms(use_true_random=False),
)
def test_each_job_is_given_when_it_is_the_best(jobs, standings, start, random) -> None:  # type: ignore[no-untyped-def]
    named = {
        leaf: [Entry(f"{leaf}#{i}", entry.cost_milli, entry.room_made) for i, entry in enumerate(entries)]
        for leaf, entries in jobs.items()
    }
    held, left = Held(start), {leaf: list(entries) for leaf, entries in named.items()}
    given_out = []
    for job in Line(CHILDREN, standings, held, named):
        firsts = {leaf: entries[0] for leaf, entries in left.items() if entries}
        leaf = job.split("#")[0]
        entry = left[leaf].pop(0)
        assert entry.job == job
        assert leaf == best("", firsts, standings, held)
        given_out.append(job)
        if random.random() < 0.4:
            held.add(leaf, entry.cost_milli)
    assert sorted(given_out) == sorted(entry.job for entries in named.values() for entry in entries)
