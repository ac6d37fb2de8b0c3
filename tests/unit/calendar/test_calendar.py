"""The book of what is booked: what fits, and when it would."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.bookings.booking import BookingSpec, Repeat
from mesos_gpu.policy.calendar.book import (
    Chosen,
    Ground,
    Guaranteed,
    Item,
    NodeGpus,
    clash,
    horizon,
    items_of,
    laid_out,
    nearest,
    never,
    refusal,
)
from mesos_gpu.policy.calendar.local_times import moved

NOW = 1_796_000_000
HOUR = 3600
_hours = st.integers(0, 12)


def bins(*gpus: int) -> list[NodeGpus]:
    return [NodeGpus(f"n{i}", "A100", "default", count) for i, count in enumerate(gpus)]


def item(name: str, gpus: int, begins: int, hours: int, nodes: int = 1, **more: object) -> Item:
    spec = BookingSpec(name, "q", gpus, "2026-12-01T09:00", hours * HOUR, nodes=nodes)
    begins = NOW + begins * HOUR
    return Item(name, spec, begins, begins + hours * HOUR, **more)  # type: ignore[arg-type]


@st.composite
def books(draw: st.DrawFn) -> tuple[list[NodeGpus], list[Item]]:
    """Nodes, and times of bookings of which each alone would fit."""
    ground = bins(*draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3)))
    most = max(each.gpus for each in ground)
    count = draw(st.integers(1, 6))
    made = [
        item(
            f"b{i}",
            draw(st.integers(1, most)),
            draw(_hours),
            draw(st.integers(1, 6)),
            draw(st.sampled_from([1, 1, 1, 2])),
        )
        for i in range(count)
    ]
    return ground, made


@pytest.mark.parametrize("count", [35, pytest.param(100, marks=pytest.mark.long)])
def test_booking_day_equal_to_one_that_fits_is_judged_alone(count: int) -> None:
    @settings(max_examples=count)
    @given(books(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=5))
    def check(made: tuple[list[NodeGpus], list[Item]], days: list[tuple[int, int]]) -> None:
        ground, items = made
        each_day = [
            [replace(each, begins=each.begins + at, ends=each.ends + at + longer * HOUR) for each in items]
            for day, (which, longer) in enumerate(days)
            for at in [day * 40 * HOUR + which * HOUR]
        ]
        alone = [clash(Ground(ground), day) for day in each_day]
        all_of_them = [each for day in each_day for each in day]
        assert clash(Ground(ground), all_of_them) == next(filter(None, alone), None)

    check()


@pytest.mark.parametrize("count", [35, pytest.param(100, marks=pytest.mark.long)])
def test_bookings_that_fit_are_never_more_than_there_is(count: int) -> None:
    @settings(max_examples=count)
    @given(books())
    @example((bins(8), [item("b0", 8, 0, 2), item("b1", 8, 2, 2)]))
    def check(made: tuple[list[NodeGpus], list[Item]]) -> None:
        ground, items = made
        places = laid_out(Ground(ground), items)
        assert (clash(Ground(ground), items) is None) == (places is not None)
        assume(places is not None)
        assert places is not None
        has = {(each.node, each.model): each.gpus for each in ground}
        for at in {each.begins for each in items}:
            used = Counter[tuple[str, str]]()
            for each in items:
                chosen = places[each.booking, each.begins]
                assert [place.gpus for place in chosen] == [each.spec.gpus] * each.spec.nodes
                assert len({place.node for place in chosen}) == each.spec.nodes
                if each.begins <= at < each.ends:
                    used.update({(place.node, place.model): place.gpus for place in chosen})
            assert all(used[key] <= has[key] for key in used)

    check()


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_booking_placed_first_leaves_room_for_the_rest(count: int) -> None:
    """Nodes are chosen one booking after the other: the first places as they were laid out never strand others."""

    @settings(max_examples=count)
    @given(books())
    def check(made: tuple[list[NodeGpus], list[Item]]) -> None:
        ground, items = Ground(made[0]), sorted(made[1], key=lambda each: (each.begins, each.booking))
        places = laid_out(ground, items)
        assume(places is not None)
        assert places is not None
        first = min(items, key=lambda each: (each.begins, -each.spec.gpus_in_all, each.booking))
        fixed = [
            replace(each, chosen=places[each.booking, each.begins]) if each is first else each
            for each in items
        ]
        assert laid_out(ground, fixed) is not None

    check()


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_booking_refusal_names_nearest_times_that_are_feasible(count: int) -> None:
    @settings(max_examples=count)
    @given(books(), st.integers(0, 5), st.integers(1, 6), st.sampled_from([Repeat.NONE, Repeat.DAILY]))
    @example((bins(8), [item("b0", 8, 1, 2)]), 0, 2, Repeat.NONE)
    def check(made: tuple[list[NodeGpus], list[Item]], late: int, hours: int, repeat: Repeat) -> None:
        ground, others = Ground(made[0]), list[Item]()
        for each in made[1]:
            if clash(ground, [*others, each]) is None:
                others.append(each)
        gpus = max(each.gpus for each in made[0])
        spec = BookingSpec("new", "q", gpus, "2026-11-01T09:00", hours * HOUR, repeat=repeat)
        spec = _at(spec, (others[0].begins if others else NOW) + late * HOUR)
        mine = items_of("new", spec, NOW, horizon(NOW))
        if clash(ground, [*others, *mine], "new") is None:
            return
        moments = nearest(ground, others, mine[0], NOW)
        assert moments, "after all others it fits"
        for at in moments:
            assert at >= NOW
            there = items_of("new", _at(spec, at), NOW, horizon(NOW))
            assert there[0].begins == at
            assert clash(ground, [*others, *there], "new") is None

    check()


def _at(spec: BookingSpec, at: int) -> BookingSpec:
    return replace(spec, begins=moved(spec, at))


def test_small_bookings_lie_together_so_that_a_whole_node_is_left() -> None:
    places = laid_out(Ground(bins(8, 8)), [item("a", 4, 0, 4), item("b", 4, 1, 4), item("c", 8, 2, 4)])
    assert places is not None
    assert {place[0].node for (name, _), place in places.items() if name != "c"} == {"n0"}


def test_booking_layout_goes_back_where_the_best_fit_leads_nowhere() -> None:
    items = [item("a", 2, 0, 9), item("b", 3, 0, 2), item("c", 4, 2, 9), item("d", 5, 2, 9)]
    places = laid_out(Ground(bins(5, 6)), items)
    assert places is not None


def test_booking_with_nodes_chosen_stays_there() -> None:
    held = item("a", 4, 0, 4, chosen=(Chosen("n1", "A100", 4),))
    places = laid_out(Ground(bins(4, 8)), [held, item("b", 4, 1, 1), item("c", 4, 1, 1)])
    assert places is not None
    assert sorted(place[0].node for place in places.values()) == ["n0", "n1", "n1"]


def test_guarantee_of_a_queue_is_booked_only_from_it() -> None:
    ground = Ground(bins(8), lambda _: Guaranteed({"default": 2000}, {("q", "default"): 6000}))
    assert clash(ground, [item("a", 2, 0, 1)]) is None
    misfit = clash(ground, [item("a", 3, 0, 1)])
    assert misfit is not None
    assert "2 GPUs are not guaranteed, and 3 would be booked" in misfit.why
    assert clash(ground, [item("a", 2, 0, 1), item("b", 6, 0, 1, owner="q")]) is None
    misfit = clash(ground, [item("b", 4, 0, 1, owner="q"), item("c", 3, 0, 1, owner="q")])
    assert misfit is not None
    assert "queue q is guaranteed 6 GPUs, and 7 would be booked of that" in misfit.why


def test_booking_counts_the_dearest_model_until_one_is_chosen() -> None:
    ground = Ground(
        [NodeGpus("n0", "A100", "default", 8, 4), NodeGpus("n1", "T4", "default", 8, 1)],
        lambda _: Guaranteed({"default": 8000}),
    )
    assert clash(ground, [item("a", 2, 0, 1)]) is None
    assert clash(ground, [item("a", 3, 0, 1)]) is not None
    assert clash(ground, [item("a", 3, 0, 1, chosen=(Chosen("n1", "T4", 3),))]) is None


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({"gpus": 9}, "no node of pool default has 9 healthy GPUs of one model; 1 would be needed"),
        ({"nodes": 3}, "2 nodes of pool default have 8 healthy GPUs of one model; 3 would be needed"),
        ({"models": ("H100",)}, "no node of pool default has 8 healthy H100; 1 would be needed"),
        ({"pool": "fast"}, "no node of pool fast has 8 healthy GPUs of one model; 1 would be needed"),
        ({}, ""),
    ],
)
def test_booking_that_would_never_fit_names_what_lacks(more: dict[str, object], want: str) -> None:
    asked = item("a", 8, 0, 1)
    asked = replace(asked, spec=replace(asked.spec, **more))  # type: ignore[arg-type]
    assert never(Ground(bins(8, 8)), asked, NOW) == want


def test_booking_refusal_names_when_and_what_would_fit() -> None:
    ground, others = Ground(bins(8)), [item("a", 8, 2, 2)]
    asked = item("new", 8, 3, 2)
    misfit = clash(ground, [*others, asked], "new")
    assert misfit is not None
    what, remedy = refusal(misfit, "UTC", [NOW, NOW + 4 * HOUR])
    assert what.startswith("at ")
    assert "no nodes are left for it beside 1 booking" in what
    assert remedy.startswith("it would fit from ")


def test_daily_booking_that_is_longer_than_a_day_overlaps_itself() -> None:
    spec = BookingSpec("a", "q", 1, "2026-12-01T09:00", 25 * HOUR, repeat=Repeat.DAILY)
    misfit = clash(Ground(bins(8)), items_of("a", spec, NOW, horizon(NOW)), "a")
    assert misfit is not None
    assert misfit.why == "it overlaps its own next occurrence"
