"""The history of a card: repeated reports are neither shown nor counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.drain import Card
from mesos_gpu.model.nodes.gpu import Health, Transition
from mesos_gpu.policy.gpus.history import MAX, with_changes

CARD = Card(GpuId("g0"))


def change(at: float, new: Health = Health.SICK, old: Health = Health.OK) -> Transition:
    return Transition(at, old, new, f"at {at}")


def test_history_is_unchanged_by_known_changes() -> None:
    card = with_changes(CARD, [change(1), change(2, Health.OK, Health.SICK)])
    assert with_changes(card, card.changes) is card
    assert card.totals == {"sick": 1, "ok": 1}


def test_history_does_not_take_dropped_changes_again() -> None:
    card = with_changes(CARD, [change(float(t)) for t in range(MAX + 5)])
    assert with_changes(card, [change(2.0), change(float(MAX))]) is card
    assert card.totals == {"sick": MAX}  # one report never brings more than ten


def test_history_reports_a_note_and_does_not_count_it() -> None:
    card = with_changes(CARD, [change(1, Health.OK, Health.OK)])
    assert (len(card.changes), card.totals) == (1, {})


def test_history_sorts_words_of_an_operator_by_time() -> None:
    card = with_changes(with_changes(CARD, [change(5, Health.DRAINED)]), [change(3), change(7)])
    assert [c.at for c in card.changes] == [3, 5, 7]


@given(st.lists(st.integers(0, 150), max_size=200), st.integers(1, 10))
def test_reports_of_the_last_ten_in_any_mix_with_notes(times: list[int], width: int) -> None:
    """A monitor's history grows; each report repeats its end; notes come between."""
    card, told = CARD, sorted(set(times))
    for end in range(1, len(told) + 1):
        window = [change(float(t)) for t in told[max(end - width, 0) : end]]
        card = with_changes(card, window)
        card = with_changes(card, window)
        card = with_changes(card, [change(told[end - 1] + 0.5, Health.OK, Health.OK)])
    assert card.totals.get("sick", 0) == len(told), "each once, however often it was repeated"
    assert len(card.changes) == min(2 * len(told), MAX)
    assert list(card.changes) == sorted(card.changes, key=lambda c: c.at)
