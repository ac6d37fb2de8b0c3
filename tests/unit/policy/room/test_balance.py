"""Transfers between borrowers: from those with more of their due to those with less, until a last one."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.room.balance import Side, stays_below
from mesos_gpu.policy.room.lost import cost, least_ms, lost_milli_s, ran


def test_borrower_due_nothing_takes_from_none_that_is_due_something() -> None:
    assert not stays_below(Side(0, 0), 1, Side(8, 8), 1)
    assert stays_below(Side(0, 8), 1, Side(8, 0), 1)
    assert stays_below(Side(0, 0), 1, Side(8, 0), 1)
    assert not stays_below(Side(0, 8), 1, Side(1, 0), 1), "the giver has nothing then"


def test_borrower_that_takes_stays_below_the_giver_as_it_is_then() -> None:
    assert stays_below(Side(2, 4), 1, Side(5, 4), 1)
    assert not stays_below(Side(3, 4), 1, Side(5, 4), 1), "4 and 4"
    assert not stays_below(Side(0, 4), 4, Side(5, 4), 4)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 5), max_size=6)), min_size=2, max_size=5),
    st.randoms(use_true_random=False),
)
def test_transfers_between_borrowers_come_to_an_end(
    queues: list[tuple[int, list[int]]], chance: object
) -> None:
    """Each job that is stopped waits again in its queue, and may take from others later."""
    due = [queue[0] for queue in queues]
    runs = [list(queue[1]) for queue in queues]
    waits: list[list[int]] = [[1, 2], *([] for _ in queues[1:])]
    seen: set[tuple[Fraction, ...]] = set()
    while True:
        parts = tuple(
            sorted((Fraction(sum(jobs), d) for jobs, d in zip(runs, due, strict=True)), reverse=True)
        )
        moves = [
            (taker, size, giver, victim)
            for taker in range(len(due))
            for size in waits[taker]
            for giver in range(len(due))
            if giver != taker
            for victim in runs[giver]
            if victim >= size
            and stays_below(
                Side(sum(runs[taker]), due[taker]), size, Side(sum(runs[giver]), due[giver]), victim
            )
        ]
        if not moves:
            break
        assert not seen or parts < min(seen), "the parts of all, the largest first, have not fallen"
        seen.add(parts)
        taker, size, giver, victim = chance.choice(moves)  # type: ignore[attr-defined]
        waits[taker].remove(size)
        runs[taker].append(size)
        runs[giver].remove(victim)
        waits[giver].append(victim)


def test_cost_of_a_stopped_job_does_not_trust_frequent_checkpoints() -> None:
    silent = [ran(0.0, None, 3600.0, 1000, 0) for _ in range(3)]
    stopped_once = ran(0.0, 3599.0, 3600.0, 1000, 1)
    least = least_ms([*silent, stopped_once])
    assert lost_milli_s(stopped_once, least, 60_000) == (1800 + 60) * 1000, (
        "half of the median, and the restart"
    )
    assert cost(stopped_once, least, 60_000) > cost(silent[0], least, 60_000)


def test_checkpoint_of_a_job_that_was_never_stopped_counts_in_full() -> None:
    silent = [ran(0.0, None, 3600.0, 1000, 0) for _ in range(3)]
    teller = ran(0.0, 3599.0, 3600.0, 1000, 0)
    least = least_ms([*silent, teller])
    assert lost_milli_s(teller, least, 60_000) == (1 + 60) * 1000, "a second, and the restart"
    assert cost(teller, least, 60_000) < cost(silent[0], least, 60_000)


def test_checkpoint_that_lies_ahead_is_one_of_now_and_who_has_not_started_loses_nothing() -> None:
    assert ran(0.0, 1e9, 10.0, 1000, 0).since_checkpoint_ms == 0
    assert ran(None, 5.0, 10.0, 1000, 0).since_start_ms == 0
    assert ran(20.0, None, 10.0, 1000, 0).since_start_ms == 0
