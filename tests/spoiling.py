"""Real documents with something wrong in them: a strategy for tests of what reads them."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st


@st.composite
def spoilt(
    draw: st.DrawFn,
    documents: Sequence[Any],
    keys: st.SearchStrategy[str],
    values: st.SearchStrategy[Any],
) -> Any:
    """Draw one of the documents, with up to three values replaced or added."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(0, 3))):
        at = document
        for _ in range(draw(st.integers(0, 3))):
            inside = at.values() if isinstance(at, dict) else at
            below = [each for each in inside if isinstance(each, dict | list)]
            if below:
                at = draw(st.sampled_from(below))
        if isinstance(at, dict):
            at[draw(st.sampled_from([*at, "x"]) | keys)] = draw(values)
        elif at:
            at[draw(st.integers(0, len(at) - 1))] = draw(values)
    return document
