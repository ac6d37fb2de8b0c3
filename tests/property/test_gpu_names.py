"""Names of GPU models, drawn: every way to write a card means it, aliases mean the same cards, parts of words none."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.nodes.gpu_names import ALIASES, means, models_of, most_specific, unclear

CARDS = (
    "NVIDIA A100-SXM4-80GB", "A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A10", "NVIDIA A10G", "Tesla T4",
    "NVIDIA T400 4GB", "Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200",
    "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA B200", "NVIDIA L4", "NVIDIA L40", "NVIDIA L40S",
    "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 3060 Ti", "NVIDIA RTX A6000",
)  # fmt: skip
#: The words that tell these cards apart; each means the cards that are listed for it and no others.
SERIES = {
    "A100": {0, 1, 2}, "A10": {3}, "A10G": {4}, "T4": {5}, "T400": {6}, "V100": {7}, "H100": {8, 9}, "H200": {10},
    "GH200": {11}, "GB200": {12}, "B200": {13}, "L4": {14}, "L40": {15}, "L40S": {16}, "4090": {17}, "A6000": {20},
}  # fmt: skip
cards = st.sampled_from(CARDS)
seeds = st.randoms(use_true_random=False)


def words_of(text: str) -> list[str]:
    return text.replace("-", " ").split()


@given(
    cards, seeds, st.sampled_from((" ", "-", "_", " / ")), st.sampled_from((str.upper, str.lower, str.title))
)
def test_gpu_name_means_its_card_in_any_order_case_and_separator(
    card: str, dice: Random, separator: str, case: Callable[[str], str]
) -> None:
    words = words_of(card)
    dice.shuffle(words)
    assert means(case(separator.join(words)), card)
    assert means("".join(words_of(card)).lower(), card)


@given(
    st.sampled_from(sorted(SERIES)), st.sampled_from((str.upper, str.lower)), st.sampled_from(("", "NVIDIA "))
)
def test_gpu_series_means_exactly_its_cards(series: str, case: Callable[[str], str], brand: str) -> None:
    meant = {place for place, card in enumerate(CARDS) if means(brand + case(series), card)}
    assert meant == SERIES[series]


@given(cards, st.sampled_from(sorted(SERIES)), st.data())
def test_part_of_a_word_of_a_gpu_name_means_nothing_that_the_word_does_not(
    card: str, series: str, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(series) - 1))
    last = data.draw(st.integers(first + 1, len(series)))
    part = series[first:last]
    own = {word.casefold() for word in words_of(card)}
    if means(part, card):
        assert part.casefold() in own, "a whole word of the card"


@given(
    cards,
    st.sampled_from(sorted(ALIASES)),
    st.lists(st.sampled_from(("A100", "H100", "V100", "80GB")), max_size=2),
)
def test_alias_means_each_card_that_its_words_mean(card: str, alias: str, others: list[str]) -> None:
    by_words = any(means(" ".join([*others, word]), card) for word in ALIASES[alias])
    assert means(" ".join([*others, alias]), card) == by_words


@given(st.text(max_size=30), st.text(max_size=30))
def test_gpu_name_always_means_the_card_of_that_name(name: str, other: str) -> None:
    assert means(name, name)
    assert models_of((name,), frozenset({name, other})) == (name,)


@given(
    cards, st.lists(st.sampled_from((*SERIES, "80GB", "A100-80GB", "A100 SXM4", "PCIe", *CARDS)), unique=True)
)
def test_most_specific_gpu_name_means_the_card_in_any_order_of_names(card: str, names: list[str]) -> None:
    best = most_specific(card, names)
    able = [name for name in names if means(name, card)]
    assert (best in able) if able else best is None
    assert best == most_specific(card, names[::-1])
    tied = unclear(card, names)
    assert not tied or (len(tied) > 1 and best in tied)
