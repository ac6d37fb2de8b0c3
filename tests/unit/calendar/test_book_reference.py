"""The book beside plain references: every way to lay out few bookings, every hour of them, every moment to begin."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, product
from random import Random
from zoneinfo import ZoneInfo

import pytest

from mesos_gpu.model.bookings.booking import BookingSpec, Repeat
from mesos_gpu.policy.calendar.book import (
    BookingConflict,
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

HOUR = 3600
NOW = 1_796_000_400 // HOUR * HOUR
MODELS = ("A100", "T4")


def item(
    name: str,
    gpus: int,
    begins: float,
    hours: float,
    nodes: int = 1,
    models: tuple[str, ...] = (),
    **more: object,
) -> Item:
    lasts_s, at = round(hours * HOUR), NOW + round(begins * HOUR)
    spec = BookingSpec(name, "q", gpus, "2026-12-01T09:00", lasts_s, nodes=nodes, models=models)
    spec = replace(spec, begins=moved(spec, at))
    return Item(name, spec, at, at + lasts_s, **more)  # type: ignore[arg-type]


def world(random: Random) -> tuple[list[NodeGpus], list[Item]]:
    """Up to three nodes, one of them with two models, and up to four bookings."""
    bins = [
        NodeGpus(f"n{n}", random.choice(MODELS), "default", random.choice((2, 4)), random.choice((1, 3)))
        for n in range(random.randint(1, 3))
    ]
    bins.append(NodeGpus("n0", "V100", "default", 2))
    items = [
        item(
            f"b{n}", random.randint(1, 4), random.randint(0, 5), random.randint(1, 4), random.choice((1, 1, 2)),
            random.choice(((), (), ("T4",), ("A100", "V100"))),
        )
        for n in range(random.randint(1, 4))
    ]  # fmt: skip
    if random.random() < 0.3:
        first = bins[0]
        chosen = (Chosen(first.node, first.model, 1),)
        spec = replace(items[0].spec, gpus=1, nodes=1, models=())
        items[0] = replace(items[0], spec=spec, chosen=chosen)
    return bins, items


def ways(bins: Sequence[NodeGpus], item: Item) -> Iterator[tuple[Chosen, ...]]:
    if item.chosen:
        yield item.chosen
        return
    may = [each for each in bins if not item.spec.models or each.model in item.spec.models]
    for nodes in combinations(may, item.spec.nodes):
        if len({each.node for each in nodes}) == len(nodes):
            yield tuple(Chosen(each.node, each.model, item.spec.gpus) for each in nodes)


def fits(bins: Sequence[NodeGpus], items: Sequence[Item], places: Sequence[tuple[Chosen, ...]]) -> bool:
    for at in {each.begins for each in items}:
        for each in bins:
            used = sum(
                place.gpus
                for item, of in zip(items, places, strict=True)
                if item.begins <= at < item.ends
                for place in of
                if (place.node, place.model) == (each.node, each.model)
            )
            if used > each.gpus:
                return False
    return True


@pytest.mark.parametrize("seed", range(80))
def test_bookings_are_laid_out_if_there_is_any_way(seed: int) -> None:
    bins, items = world(Random(seed))
    every = (fits(bins, items, places) for places in product(*(list(ways(bins, each)) for each in items)))
    places = laid_out(Ground(bins), items)
    assert (places is not None) == any(every)
    misfit = clash(Ground(bins), items)
    assert (misfit is None) == (places is not None)
    if places is not None:
        assert set(places) == {(each.booking, each.begins) for each in items}
        in_order = [places[each.booking, each.begins] for each in items]
        assert fits(bins, items, in_order)
        for each, of in zip(items, in_order, strict=True):
            assert {*of} in [{*way} for way in ways(bins, each)]


class Shifts:
    """Guarantees that are others after some hours."""

    def __init__(self, random: Random) -> None:
        self.borders = sorted(random.sample(range(1, 9), 3))
        self.free = [random.choice((2000, 4000, 8000)) for _ in range(4)]
        self.owed = [random.choice((0, 2000, 6000)) for _ in range(4)]

    def __call__(self, at: float) -> Guaranteed:
        number = sum(NOW + border * HOUR <= at for border in self.borders)
        free = {} if self.free[number] == 8000 else {"default": self.free[number]}
        until = NOW + self.borders[number] * HOUR if number < 3 else float("inf")
        owed = {("q", "default"): self.owed[number]} if self.owed[number] else {}
        return Guaranteed(free, owed, until)


@pytest.mark.parametrize("seed", range(80))
def test_sums_of_bookings_stay_within_guarantees_at_each_hour(seed: int) -> None:
    random = Random(seed)
    shifts = Shifts(random)
    ground = Ground([NodeGpus("n0", "A100", "default", 99, 2)], shifts)
    items = [
        item(f"b{n}", 1, random.randint(0, 8), random.randint(1, 3), owner=random.choice(("", "q", "r")))
        for n in range(random.randint(1, 4))
    ]
    over = []
    for hour in range(13):
        at, now = NOW + hour * HOUR, shifts(NOW + hour * HOUR)
        for owner in ("", "q", "r"):
            there = [each for each in items if each.owner == owner and each.begins <= at < each.ends]
            most = now.owed.get((owner, "default"), 0) if owner else now.free.get("default")
            if most is not None and 2000 * len(there) > most:
                over.append(at)
    misfit = clash(ground, items)
    assert (misfit.at if misfit else None) == min(over, default=None)


@pytest.mark.parametrize("seed", range(60))
def test_nearest_moments_are_the_first_on_each_side_that_fit(seed: int) -> None:
    random = Random(seed)
    shifts = Shifts(random)
    ground = Ground([NodeGpus("n0", "A100", "default", 4, 1)], shifts)
    others: list[Item] = []
    for n in range(4):
        other = item(f"b{n}", random.randint(1, 4), random.randint(0, 8) / 2, random.randint(1, 4) / 2)
        if clash(ground, [*others, other]) is None:
            others.append(other)

    def fit(at: float) -> bool:
        return clash(ground, [*others, item("new", gpus, at, lasts)], "new") is None

    for _ in range(99):
        gpus, begins, lasts = random.randint(1, 4), float(random.randint(0, 8)), random.randint(1, 4) / 2
        if not fit(begins):
            break
    asked = item("new", gpus, begins, lasts)
    steps = range(0, 40 * 60, 30)  # minutes
    later = [at / 60 for at in steps if at / 60 > begins and fit(at / 60)][:1]
    earlier = [at / 60 for at in steps if 0 < at / 60 < begins and fit(at / 60)][-1:]
    moments = [(at - NOW) / HOUR for at in nearest(ground, others, asked, NOW - 1, most=1)]
    if begins and not earlier and fit(0):
        earlier = [0.0]
    assert moments == [*earlier, *later]


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        (
            [item("a", 3, 0, 2), item("b", 3, 1, 2)],
            BookingConflict("no nodes are left for it beside 1 booking (6 GPUs in all)", NOW + HOUR),
        ),
        (
            [item("a", 1, 0, 4), item("b", 2, 1, 2), item("c", 2, 1, 2), item("d", 4, 3, 2)],
            BookingConflict("no nodes are left for it beside 2 bookings (5 GPUs in all)", NOW + HOUR),
        ),
        (
            [item("a", 1, 0, 2), item("a", 1, 1, 2)],
            BookingConflict("it overlaps its own next occurrence", NOW + HOUR, is_own=True),
        ),
        ([item("a", 4, 0, 2), item("a", 4, 2, 2)], None),
    ],
)
def test_clash_says_what_is_there_at_its_peak(items: list[Item], wanted: BookingConflict | None) -> None:
    assert clash(Ground([NodeGpus("n0", "A100", "default", 4)]), items) == wanted


OWED = {
    ("a", "default"): 3000, ("a/b", "default"): 2000, ("z", "default"): 1000, ("c", "default"): 4000,
    ("d", "default"): 1000, ("e", "default"): 1000, ("f", "default"): 0, ("g", "big"): 9000,
}  # fmt: skip
OWN = "; a queue can book part of its own guarantee with --from-guarantee"
HOLDERS = "queue c is guaranteed 4, queue a is guaranteed 3, queue d is guaranteed 1, 2 more queues the rest"


@pytest.mark.parametrize(
    ("pool", "owner", "owed", "why"),
    [
        ("default", "", {}, "1.5 GPUs are guaranteed, and 2 would be booked"),
        ("default", "", OWED, f"1.5 GPUs are guaranteed, and 2 would be booked: {HOLDERS}{OWN}"),
        (
            "big", "", OWED,
            f"1.5 GPUs of pool big are guaranteed, and 2 would be booked: queue g is guaranteed 9{OWN}",
        ),
        ("default", "z", OWED, "queue z is guaranteed 1 GPU, and 2 would be booked of that"),
        ("big", "z", OWED, "queue z is guaranteed 0 GPUs of pool big, and 2 would be booked of that"),
    ],
)  # fmt: skip
def test_clash_of_sums_names_who_is_guaranteed_most(
    pool: str, owner: str, owed: dict[tuple[str, str], int], why: str
) -> None:
    asked = item("a", 2, 0, 1, owner=owner)
    asked = replace(asked, spec=replace(asked.spec, pool=pool))
    ground = Ground([NodeGpus("n0", "A100", pool, 8)], lambda _: Guaranteed({pool: 1500}, owed))
    misfit = clash(ground, [asked])
    assert misfit is not None
    assert (_shortened(misfit.why), misfit.at) == (why, NOW)


def _shortened(why: str) -> str:
    return why.replace(" not guaranteed,", " guaranteed,")


def test_three_holders_are_all_named() -> None:
    owed = {(name, "default"): 1000 for name in "cab"}
    ground = Ground([NodeGpus("n0", "A100", "default", 8)], lambda _: Guaranteed({"default": 0}, owed))
    misfit = clash(ground, [item("a", 2, 0, 1)])
    assert misfit is not None
    named = ", ".join(f"queue {name} is guaranteed 1" for name in "abc")
    assert _shortened(misfit.why) == f"0 GPUs are guaranteed, and 2 would be booked: {named}{OWN}"


def test_cost_of_a_booking_is_that_of_its_nodes_or_of_the_dearest_that_may_be() -> None:
    bins = [
        NodeGpus("n0", "A100", "default", 8, 4),
        NodeGpus("n1", "T4", "default", 8),
        NodeGpus("n2", "H100", "big", 8, 9),
    ]
    ground = Ground(bins)
    assert ground.milli(item("a", 2, 0, 1, nodes=2)) == 4 * 4000
    assert ground.milli(item("a", 2, 0, 1, models=("T4", "H100"))) == 2000
    assert ground.milli(item("a", 2, 0, 1, models=("H100",))) == 2000
    chosen = Chosen("n0", "A100", 2), Chosen("n1", "T4", 2), Chosen("n1", "A100", 1)
    assert ground.milli(item("a", 2, 0, 1, chosen=chosen)) == 8000 + 2000 + 1000


def test_items_of_a_booking_are_its_times_on_later_days() -> None:
    spec = replace(item("a", 1, 0, 2).spec, repeat=Repeat.DAILY, begins="2026-12-01T09:00")
    day = 24 * HOUR
    every = items_of("a", spec, NOW, NOW + 10 * day, owner="q")
    assert [(each.booking, each.owner, each.ends - each.begins) for each in every] == [
        ("a", "q", 2 * HOUR)
    ] * len(every)
    assert items_of("a", spec, NOW, NOW + 10 * day, owner="q", after="2026-12-03") == [
        each for each in every if each.begins >= every[0].begins and each.begins > _at_nine(3)
    ]


def _at_nine(day: int) -> int:
    return int(datetime(2026, 12, day, 9, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("free", "nodes", "gpus", "words"),
    [
        (8000, 1, 8, ""),
        (7000, 1, 8, "7 GPUs are guaranteed, and 8 would be booked"),
        (8000, 2, 8, "1 node of pool default has 8 healthy GPUs of one model; 2 would be needed"),
        (8000, 1, 1, ""),
        (8000, 1, 9, "no node of pool default has 9 healthy GPUs of one model; 1 would be needed"),
        (0, 1, 1, "0 GPUs are guaranteed, and 1 would be booked"),
    ],
)
def test_booking_that_never_fits_says_why(free: int, nodes: int, gpus: int, words: str) -> None:
    bins = [NodeGpus("n0", "A100", "default", 8), NodeGpus("n1", "A100", "default", 4)]
    ground = Ground(bins, lambda _: Guaranteed({"default": free}))
    assert _shortened(never(ground, item("a", gpus, 0, 1, nodes=nodes), NOW)) == words


def test_booking_that_fits_when_hours_of_guarantees_end_is_not_never() -> None:
    border = NOW + 3 * HOUR

    def guaranteed(at: float) -> Guaranteed:
        return Guaranteed({"default": 0}, {}, border) if at < border else Guaranteed({"default": 8000})

    ground = Ground([NodeGpus("n0", "A100", "default", 8)], guaranteed)
    asked = item("a", 8, 0, 1)
    assert never(ground, asked, NOW) == ""
    assert nearest(ground, (), asked, NOW) == (border,)


def test_booking_that_does_not_fit_before_the_horizon_has_no_other_moment() -> None:
    ground = Ground([NodeGpus("n0", "A100", "default", 8)])
    taken = replace(item("b", 8, 0, 1), ends=int(horizon(NOW)) + HOUR)
    assert nearest(ground, [taken], item("a", 8, 1, 1), NOW) == ()


def test_refusal_of_a_booking_names_moments_in_its_zone() -> None:
    misfit = BookingConflict("it is full", NOW)
    what, fewer = refusal(misfit, "Europe/Vienna", [])
    assert what == f"at {_shown(NOW)} it is full"
    assert fewer == "book fewer GPUs, or for a shorter time: no other begin within 366 days was found"
    _, others = refusal(misfit, "Europe/Vienna", [NOW - HOUR, NOW + HOUR])
    assert others == f"it would fit from {_shown(NOW - HOUR)}, or {_shown(NOW + HOUR)} on (Europe/Vienna)"


def _shown(at: int) -> str:
    return datetime.fromtimestamp(at, ZoneInfo("Europe/Vienna")).strftime("%a %Y-%m-%d %H:%M")


def on(node: str, name: str, gpus: int, begins: float, hours: float) -> Item:
    return item(name, gpus, begins, hours, chosen=(Chosen(node, "A100", gpus),))


@pytest.mark.parametrize(
    ("held", "asked", "fit"),
    [
        ([on("n0", "a", 3, 0, 2), on("n0", "b", 3, 2, 2)], item("c", 1, 0, 4), True),
        ([on("n0", "a", 3, 0, 2), on("n0", "b", 3, 1, 2)], item("c", 1, 0, 4), False),
        ([on("n0", "a", 3, 0, 2), on("n0", "b", 1, 1, 2)], item("c", 1, 2, 2), True),
        ([on("n0", "a", 4, 5, 1)], item("c", 4, 0, 4), True),
        ([on("n0", "a", 4, 4, 1)], item("c", 4, 0, 4), True),
        ([on("n0", "a", 4, 3.5, 1)], item("c", 4, 0, 4), False),
        ([on("n0", "a", 4, 0, 1)], item("c", 4, 2, 2), True),
        ([on("n0", "a", 4, 0, 2)], item("c", 4, 2, 2), True),
        ([on("n0", "a", 4, 0, 2.5)], item("c", 4, 2, 2), False),
    ],
)
def test_booking_fits_beside_what_its_node_holds_at_each_moment(
    held: list[Item], asked: Item, fit: bool
) -> None:
    """The other node is held all the time, so that all of them are looked at together."""
    bins = [NodeGpus("n0", "A100", "default", 4), NodeGpus("n1", "A100", "default", 4)]
    places = laid_out(Ground(bins), [*held, on("n1", "z", 4, 0, 9), asked])
    assert (places is not None) is fit
