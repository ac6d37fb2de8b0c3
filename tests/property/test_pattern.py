"""Our regular expressions against Python's own, where the two agree by definition."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.model.jobs.pattern import matches, problem_of

ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", "[a-c-]", r"\d", r"\.", r"\w", r"[\d.]", "1"])
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "{0}"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, COUNTS).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(st.tuples(ATOMS, COUNTS).map("".join), grown, max_leaves=6)


@settings(max_examples=300)
@given(PATTERNS, st.lists(st.text("ab-.1c", max_size=6), min_size=1, max_size=5))
def test_pattern_matches_the_texts_that_re_matches(pattern: str, texts: list[str]) -> None:
    assert problem_of(pattern) == ""
    for text in texts:
        assert matches(pattern, text) is (re.fullmatch(pattern, text) is not None)


@settings(max_examples=300)
@given(st.text("ab()[]{}|*+?\\.^$-,1&i<:=", max_size=12))
def test_pattern_of_any_text_is_understood_or_refused(pattern: str) -> None:
    if problem_of(pattern) == "":
        matches(pattern, "ab")
    else:
        with pytest.raises(ValueError, match=r"^(has|is) "):
            matches(pattern, "ab")
