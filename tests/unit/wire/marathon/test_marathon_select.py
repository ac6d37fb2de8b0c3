"""Label selectors."""

import time

import pytest

from mesos_gpu.wire.marathon.select import selectors_of

LABELS = {"env": "prod", "tier": "web", "a/b": "1,2", "empty": ""}
CASES = {
    "": True,
    "env": True,
    "other": False,
    "env==prod": True,
    "env == qa": False,
    "env!=qa": True,
    "env!=prod": False,
    "other!=qa": False,  # it must be there
    "env in (prod, qa)": True,
    "env in(qa)": False,
    "env in ()": False,
    "env notin (qa)": True,
    "env notin (qa,prod)": False,
    "other notin (qa)": False,
    "env notin ()": True,
    "env==prod, tier in (web), empty": True,
    "env==prod,tier==db": False,
    r"a\/b==1\,2": True,
    "in": False,
}


@pytest.mark.parametrize(("text", "want"), CASES.items(), ids=CASES)
def test_label_selectors_match_labels(text: str, want: bool) -> None:
    selectors = selectors_of(text)
    assert not isinstance(selectors, str), selectors
    assert all(selector.matches(LABELS) for selector in selectors) == want


@pytest.mark.parametrize(
    "text",
    ["a=b", "a==", "==b", "a in b", "a in (b", "a,", "a, ", "a b", "a/b", "a,,b", "a==b==c", "a" * 5000],
)
def test_label_selector_that_is_malformed_is_refused(text: str) -> None:
    assert isinstance(selectors_of(text), str)


def test_label_selector_of_many_blanks_is_quick() -> None:
    began = time.process_time()
    for _ in range(100):
        assert isinstance(selectors_of("a" + " " * 4000 + "!"), str)
    assert time.process_time() - began < 5
